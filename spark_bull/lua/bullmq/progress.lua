-- Stores a job's progress and tells those who listen.
-- @keys job events meta
-- @args job_id progress
-- @returns 0, or -1 when there is no such job
-- @include bullmq/lib/event_limit

if redis.call('EXISTS', key.job) == 0 then
  return -1
end
redis.call('HSET', key.job, 'progress', arg.progress)
redis.call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'progress',
  'jobId', arg.job_id, 'data', arg.progress)
return 0
