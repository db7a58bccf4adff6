-- Puts a failed or completed job back among those that wait, and among those its parent waits for.
-- `outcome` is the field that tells how it ended.
-- @keys receipt job state wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id from outcome
-- @returns {'done'}, {'missing'} or {'elsewhere'} (not in `state`)
-- @include bullmq/lib/allow_wrongtype
-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/event_limit
-- @include bullmq/lib/major_version
-- @include lib/once
-- @include lib/priority_of
-- @include lib/push_of

local call = redis.call

-- A parent that has left waiting-children since doesn't come back.
local function return_to_parent(parent_key)
  local from_there
  if arg.from == 'failed' then
    from_there = call('ZREM', parent_key .. ':unsuccessful', key.job) + call('HDEL', parent_key .. ':failed', key.job)
  else
    from_there = call('HDEL', parent_key .. ':processed', key.job)
  end
  if from_there > 0 then
    call('SADD', parent_key .. ':dependencies', key.job)
  end
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  local fields = call('HMGET', key.job, 'opts', 'parentKey')
  if call('ZREM', key.state, arg.job_id) == 0 then
    return {'elsewhere'}
  end
  call('HDEL', key.job, 'finishedOn', 'processedOn', arg.outcome)
  -- BullMQ 5 forgets that the job had a priority.
  local major = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version)
  enqueue_job(key, arg.bullmq_version, arg.job_id, major > 5 and priority_of(key.job) or 0, push_of(fields[1]))
  if fields[2] and call('EXISTS', fields[2]) == 1 then
    allow_wrongtype(return_to_parent, fields[2])
  end
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'waiting',
    'jobId', arg.job_id, 'prev', arg.from)
  return {'done'}
end)
