-- Lets a delayed job wait for a worker now, by its priority.
-- @keys receipt job delayed wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed)
-- @include enqueue_bullmq
-- @include promote_once

local call = redis.call

return promote_once(key, arg, function()
  local priority = tonumber(call('HGET', key.job, 'priority') or 0) or 0
  enqueue_bullmq(key, arg.bullmq_version, arg.job_id, priority, 'LPUSH')
  call('XADD', key.events, '*', 'event', 'waiting', 'jobId', arg.job_id, 'prev', 'delayed')
  call('HSET', key.job, 'delay', 0)
end)
