-- @include lib: job_row
-- @include {dialect}/lib: started_field(STARTED_FIELD)

-- Whether a job may not start any more: its time has come, and it has not started; and when the time of another job
-- that has not started will come, ms since 1970 as text. A job that has started loses its time; one with a lock may
-- have been claimed without a start.
local function has_expired(job_key, now)
  local row = job_row(job_key, 'expireAt', STARTED_FIELD)
  if not (row and row[1]) then
    return false
  end
  if row[2] then
    if redis.call('EXISTS', job_key .. ':lock') == 0 then
      redis.call('HDEL', job_key, 'expireAt')
    end
    return false
  end
  return (tonumber(row[1]) or math.huge) <= now, row[1]
end
