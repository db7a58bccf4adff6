-- Stores a job's progress and publishes it.
-- @keys job events meta
-- @args job_id progress
-- @returns 0, or -1 when the job does not exist
-- @include bullmq/lib/event_limit
-- @include lib/save_progress

if not save_progress(key.job, arg.progress) then
  return -1
end
redis.call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'progress',
  'jobId', arg.job_id, 'data', arg.progress)
return 0
