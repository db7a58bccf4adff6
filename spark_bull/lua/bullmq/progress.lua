-- Stores a job's progress and publishes it.
-- @args job_id progress lock_token of_checkpoint
-- @returns 0; -1 when the job does not exist; -2 when it has a checkpoint, or `of_checkpoint` is 1, and the lock does not
--   hold `lock_token`
-- @include bullmq/lib/event_limit
-- @include lib/save_progress

local refused = save_progress(key, arg)
if refused then
  return refused
end
redis.call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'progress',
  'jobId', arg.job_id, 'data', arg.progress)
return 0
