-- Stores a job's progress and tells those who listen.
-- @keys job
-- @args base job_id progress
-- @returns 0, or -1 when there is no such job
-- @include bull/lib/json_text

if redis.call('EXISTS', key.job) == 0 then
  return -1
end
redis.call('HSET', key.job, 'progress', arg.progress)
redis.call('PUBLISH', arg.base .. 'progress', '{"jobId":' .. json_text(arg.job_id) .. ',"progress":' .. arg.progress .. '}')
return 0
