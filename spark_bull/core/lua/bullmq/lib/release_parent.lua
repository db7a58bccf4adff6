-- @include lib: whole_number
-- @include bullmq/lib: delay_job emit enqueue_job

-- Moves a parent from `state` to the waiting or, if it has a delay, the delayed jobs. `push`: RPUSH (nil) makes it the
-- next one of its list, LPUSH the last one. Returns whether it was in `state`.
local function release_parent(keys, arg, parent_key, parent_id, state, now, push)
  local call = redis.call
  if call('ZREM', state, parent_id) == 0 then
    return false
  end
  local fields = call('HMGET', parent_key, 'priority', 'delay')
  local delay = whole_number(fields[2])
  if delay > 0 then
    delay_job(keys, parent_id, now + delay)
  else
    enqueue_job(keys, arg.bullmq_version, parent_id, whole_number(fields[1]), push or 'RPUSH')
    emit(keys, arg, 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
  end
  return true
end
