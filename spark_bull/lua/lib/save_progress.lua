-- Stores a job's progress. Returns whether the job exists.
local function save_progress(job_key, progress)
  if redis.call('EXISTS', job_key) == 0 then
    return false
  end
  redis.call('HSET', job_key, 'progress', progress)
  return true
end
