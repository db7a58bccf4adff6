-- Lets a delayed job wait for a worker now, by its priority.
-- @keys receipt job delayed wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed)
-- @include enqueue_bullmq
-- @include priority_of
-- @include promote_once

local call = redis.call

return promote_once(key, arg, function()
  enqueue_bullmq(key, arg.bullmq_version, arg.job_id, priority_of(key.job), 'LPUSH')
  call('XADD', key.events, '*', 'event', 'waiting', 'jobId', arg.job_id, 'prev', 'delayed')
  redis.pcall('HSET', key.job, 'delay', 0)
end)
