-- @include lib/job_row

-- Whether a job may not start any more: its time has come, and it has not started. `started`: the name of a field that
-- each start sets.
local function has_expired(job_key, started, now)
  local row = job_row(job_key, 'expireAt', started)
  return row and row[1] and tonumber(row[1]) <= now and not row[2]
end
