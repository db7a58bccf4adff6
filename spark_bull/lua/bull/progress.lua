-- Stores a job's progress and publishes it.
-- @keys job
-- @args base job_id progress
-- @returns 0, or -1 when the job does not exist
-- @include bull/lib/json_text
-- @include lib/save_progress

if not save_progress(key.job, arg.progress) then
  return -1
end
redis.call('PUBLISH', arg.base .. 'progress', '{"jobId":' .. json_text(arg.job_id) .. ',"progress":' .. arg.progress .. '}')
return 0
