-- @include bullmq/lib: parent_of release_parent

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

local family = {child_completed = child_completed, child_failed = child_failed}
