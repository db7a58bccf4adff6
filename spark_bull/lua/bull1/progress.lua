-- Stores a job's progress and publishes it.
-- @keys job
-- @args base queue token job_id progress
-- @returns 0, or -1 when the job does not exist
-- @include bull1/lib/announce
-- @include lib/save_progress

if not save_progress(key.job, arg.progress) then
  return -1
end
announce(arg, 'progress', arg.job_id, arg.progress)
return 0
