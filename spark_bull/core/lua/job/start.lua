-- Starts claimed jobs that can expire: from now on they can't. A job stays as it is if it has expired, or if its lock does
-- not hold `lock_token`.
-- @args ids...
-- @returns ids of the jobs that stay as they are
-- @include lib: jobs(job_row) values(time_ms)

local now, kept = time_ms(), {}
for _, id in ipairs(arg.ids) do
  local job_key = arg.base .. id
  local row = job_row(job_key, 'expireAt')
  local expires = row and row[1] and (tonumber(row[1]) or math.huge)
  if call('GET', job_key .. ':lock') ~= arg.lock_token or (expires and expires <= now) then
    kept[#kept + 1] = id
  elseif expires then
    call('HDEL', job_key, 'expireAt')
  end
end
return kept
