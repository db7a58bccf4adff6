-- @include lib: time_ms

-- Clears the outcome of a job that is retried.
local function clear_outcome(job_key)
  redis.call('HDEL', job_key, 'finishedOn', 'processedOn', 'failedReason')
  redis.call('HSET', job_key, 'retriedOn', time_ms())
end
