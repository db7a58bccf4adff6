-- @include lib/time_ms

-- Clears the outcome of a job that is retried, and publishes that it waits.
local function retried(_, arg, job_id)
  local job_key = arg.base .. job_id
  redis.call('HDEL', job_key, 'finishedOn', 'processedOn', 'failedReason')
  redis.call('HSET', job_key, 'retriedOn', time_ms())
  redis.call('PUBLISH', arg.base .. 'waiting@' .. arg.token, job_id)
end
