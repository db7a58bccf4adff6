-- Stores a job's progress and tells those who listen.
-- @keys job
-- @args base queue token job_id progress
-- @returns 0, or -1 when there is no such job
-- @include bull1/lib/announce

if redis.call('EXISTS', key.job) == 0 then
  return -1
end
redis.call('HSET', key.job, 'progress', arg.progress)
announce(arg, 'progress', arg.job_id, arg.progress)
return 0
