-- Lets a delayed job wait for a worker now, by its priority.
-- @keys receipt job delayed wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed)
-- @include enqueue_bullmq
-- @include once

local call = redis.call

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local was_delayed = call('ZREM', key.delayed, arg.job_id) == 1
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  if not was_delayed then
    return {'elsewhere'}
  end
  local priority = tonumber(call('HGET', key.job, 'priority') or 0) or 0
  enqueue_bullmq(key, arg.bullmq_version, arg.job_id, priority, 'LPUSH')
  call('XADD', key.events, '*', 'event', 'waiting', 'jobId', arg.job_id, 'prev', 'delayed')
  call('HSET', key.job, 'delay', 0)
  return {'done'}
end)
