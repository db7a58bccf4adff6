-- Publishes that a job is retried.
local function retried(key, _, job_id)
  redis.call('PUBLISH', key.jobs, job_id)
end
