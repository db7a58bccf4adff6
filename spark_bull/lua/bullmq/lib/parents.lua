-- @include bullmq/lib/delay_job
-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/leave_parent
-- @include lib/keys_at
-- @include lib/whole_number

-- Moves a parent from `state` to the waiting or, if it has a delay, the delayed jobs. Returns whether it was in
-- `state`.
local function release_parent(keys, arg, parent_key, parent_id, state, now)
  local call = redis.call
  if call('ZREM', state, parent_id) == 0 then
    return false
  end
  local fields = call('HMGET', parent_key, 'priority', 'delay')
  local delay = whole_number(fields[2])
  if delay > 0 then
    delay_job(keys, parent_id, now + delay)
  else
    enqueue_job(keys, arg.bullmq_version, parent_id, whole_number(fields[1]), 'RPUSH')
    call('XADD', keys.events, '*', 'event', 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
  end
  return true
end

-- Returns the keys of the parent's queue, and its id.
local function parent_of(key, arg, parent_key)
  local base, parent_id = split_job_key(arg, parent_key)
  return keys_at(key, arg, base), parent_id
end

-- Stores the result of a completed child in its parent; releases the parent after the last child.
local function child_completed(key, arg, job_key, parent_key, value, now)
  local call = redis.call
  local children = parent_key .. ':dependencies'
  if call('SREM', children, job_key) == 0 then
    return
  end
  call('HSET', parent_key .. ':processed', job_key, value)
  if call('SCARD', children) == 0 and call('EXISTS', parent_key) == 1 then
    local keys, parent_id = parent_of(key, arg, parent_key)
    release_parent(keys, arg, parent_key, parent_id, keys.waiting_children, now)
  end
end

-- A parent that fails because of its child gets a deferred failure, with which the next worker fails it.
local function fail_parent(keys, arg, job_key, parent_key, parent_id, now)
  local call = redis.call
  if call('EXISTS', parent_key) == 0 then
    return
  end
  local waits = call('ZSCORE', keys.waiting_children, parent_id)
  local delayed = not waits and call('ZSCORE', keys.delayed, parent_id)
  if delayed then
    call('HSET', parent_key, 'delay', 0)
  end
  if waits or delayed or not call('ZSCORE', keys.failed, parent_id) then
    call('HSET', parent_key, 'defa', 'child ' .. job_key .. ' failed')
  end
  if waits or delayed then
    release_parent(keys, arg, parent_key, parent_id, waits and keys.waiting_children or keys.delayed, now)
  end
end

-- Applies the final failure of a child to its parent. `rules`: the child's field `parent`, which says what to do.
local function child_failed(key, arg, job_key, parent_key, rules, reason, now)
  local call = redis.call
  local children = parent_key .. ':dependencies'
  if not (rules.fpof or rules.cpof or rules.idof or rules.rdof) or call('SREM', children, job_key) == 0 then
    return
  end
  local keys, parent_id = parent_of(key, arg, parent_key)
  if rules.fpof then
    call('ZADD', parent_key .. ':unsuccessful', now, job_key)
    fail_parent(keys, arg, job_key, parent_key, parent_id, now)
    return
  end
  if rules.cpof or rules.idof then
    call('HSET', parent_key .. ':failed', job_key, reason)
  end
  if (rules.cpof or call('SCARD', children) == 0) and call('EXISTS', parent_key) == 1 then
    release_parent(keys, arg, parent_key, parent_id, keys.waiting_children, now)
  end
end
