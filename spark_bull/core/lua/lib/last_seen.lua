-- @include lib: job_row

-- When a job ended, else when it started, else when it was added, ms, or nil.
local function last_seen(job_key)
  local times = job_row(job_key, 'finishedOn', 'processedOn', 'timestamp')
  return times and tonumber(times[1] or times[2] or times[3])
end
