-- Stores a job's progress and publishes it.
-- @args base queue token job_id progress lock_token of_checkpoint
-- @returns 0; -1 when the job does not exist; -2 when it has a checkpoint, or `of_checkpoint` is 1, and the lock does not
--   hold `lock_token`
-- @include bull1/lib/announce
-- @include lib/save_progress

local refused = save_progress(key, arg)
if refused then
  return refused
end
announce(arg, 'progress', arg.job_id, arg.progress)
return 0
