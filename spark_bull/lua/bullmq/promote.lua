-- Moves a delayed job to the waiting or prioritized ones.
-- @keys receipt job delayed wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include bullmq/lib/enqueue_job
-- @include lib/priority_of
-- @include lib/promote_once

local call = redis.call

return promote_once(key, arg, function()
  enqueue_job(key, arg.bullmq_version, arg.job_id, priority_of(key.job), 'LPUSH')
  call('XADD', key.events, '*', 'event', 'waiting', 'jobId', arg.job_id, 'prev', 'delayed')
  redis.pcall('HSET', key.job, 'delay', 0)
end)
