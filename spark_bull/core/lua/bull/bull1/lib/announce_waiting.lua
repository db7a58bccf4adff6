-- Publishes that a job waits.
local function announce_waiting(key, _, job_id)
  redis.call('PUBLISH', key.jobs, job_id)
end
