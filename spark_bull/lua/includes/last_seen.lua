-- When a job was added, ms, or nil.
local function added_at(job_key)
  return tonumber(redis.call('HGET', job_key, 'timestamp') or nil)
end

-- When something happened to a job last, as far as its hash tells: it ended, started or was added. ms, or nil.
local function last_seen(job_key)
  local times = redis.call('HMGET', job_key, 'finishedOn', 'processedOn', 'timestamp')
  return tonumber(times[1] or times[2] or times[3] or nil)
end
