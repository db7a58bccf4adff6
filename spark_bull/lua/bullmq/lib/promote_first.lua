-- @include bullmq/lib/enqueue_job
-- @include lib/priority_of

-- Makes delayed jobs the next ones, in this order; those with a priority return to the prioritized ones.
local function promote_first(key, arg, ids)
  for i = #ids, 1, -1 do
    local id = ids[i]
    redis.call('ZREM', key.delayed, id)
    enqueue_job(key, arg.bullmq_version, id, priority_of(arg.base .. id), 'RPUSH')
    redis.call('XADD', key.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
    redis.pcall('HSET', arg.base .. id, 'delay', '0')
  end
end
