-- Publishes that a job waits.
local function announce_waiting(_, arg, job_id)
  redis.call('PUBLISH', arg.base .. 'waiting@' .. arg.token, job_id)
end
