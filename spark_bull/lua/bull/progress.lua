-- Stores a job's progress and publishes it.
-- @args base job_id progress lock_token of_checkpoint
-- @returns 0; -1 when the job does not exist; -2 when it has a checkpoint, or `of_checkpoint` is 1, and the lock does not
--   hold `lock_token`
-- @include bull/lib/json_text
-- @include lib/save_progress

local refused = save_progress(key, arg)
if refused then
  return refused
end
redis.call('PUBLISH', arg.base .. 'progress', '{"jobId":' .. json_text(arg.job_id) .. ',"progress":' .. arg.progress .. '}')
return 0
