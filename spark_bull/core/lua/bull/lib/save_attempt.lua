-- @include lib: count_up

-- Stores a failed attempt in the job's hash.
local function save_attempt(job_key, job)
  redis.call('HSET', job_key, 'stacktrace', job.stack, 'failedReason', job.reason)
  count_up(job_key, 'attemptsMade')
end
