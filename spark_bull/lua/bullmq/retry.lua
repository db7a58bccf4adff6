-- Moves a failed or completed job back to the waiting ones, and back into the dependencies of its parent. `outcome`:
-- the field with its result or error.
-- @keys receipt job state wait paused active prioritized pc meta events marker
-- @args bullmq_version call ttl_ms job_id from outcome
-- @returns {'done'}, {'missing'} or {'wrong_state'} (not in `state`)
-- @include bullmq/lib/allow_wrongtype
-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/event_limit
-- @include bullmq/lib/major_version
-- @include lib/once
-- @include lib/priority_of
-- @include lib/push_of

local call = redis.call

-- Does not move the parent, which may have left `waiting-children`.
local function return_to_parent(parent_key)
  local removed
  if arg.from == 'failed' then
    removed = call('ZREM', parent_key .. ':unsuccessful', key.job) + call('HDEL', parent_key .. ':failed', key.job)
  else
    removed = call('HDEL', parent_key .. ':processed', key.job)
  end
  if removed > 0 then
    call('SADD', parent_key .. ':dependencies', key.job)
  end
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  local fields = call('HMGET', key.job, 'opts', 'parentKey')
  if call('ZREM', key.state, arg.job_id) == 0 then
    return {'wrong_state'}
  end
  call('HDEL', key.job, 'finishedOn', 'processedOn', arg.outcome)
  -- In BullMQ 5 the job loses its priority.
  local major = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version)
  enqueue_job(key, arg.bullmq_version, arg.job_id, major > 5 and priority_of(key.job) or 0, push_of(fields[1]))
  if fields[2] and call('EXISTS', fields[2]) == 1 then
    allow_wrongtype(return_to_parent, fields[2])
  end
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'waiting',
    'jobId', arg.job_id, 'prev', arg.from)
  return {'done'}
end)
