-- Parents and their children.
-- @include lib: numbers(whole_number) other_queues(keys_at)
-- @include bullmq/lib: deduplication(free_deduplication) delayed(delay_job) events(emit event_limit)
-- @include bullmq/lib: waiting(enqueue_job)

-- Runs step(...), which writes to keys that a job shares with others. A key of a wrong type ends the step, but not the
-- script.
local function allow_wrongtype(step, ...)
  local done, why = pcall(step, ...)
  local message = type(why) == 'table' and why.err or why
  if not done and not string.find(message, 'WRONGTYPE', 1, true) then
    error(why, 0)
  end
end

-- The part of the keys of relays between the base of their queue and the id; relays are a queue of private keys.
local RELAYS = 'spark:relay:'

-- Parents and children refer to each other by the keys of their hashes, in any queue.
-- Returns the base of the queue's keys, and the job's id. The name of a queue has no ':', an id can have some.
local function split_job_key(arg, job_key)
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  if string.sub(job_key, 1, #prefix) == prefix then
    local queue, job_id = string.match(job_key, '^([^:]*:)(.*)$', #prefix + 1)
    if queue and string.sub(job_id, 1, #RELAYS) == RELAYS then
      return prefix .. queue .. RELAYS, string.sub(job_id, #RELAYS + 1)
    elseif queue then
      return prefix .. queue, job_id
    end
  end
  return string.match(job_key, '^(.*:)(.*)$')
end

-- Returns the keys of the parent's queue, and its id.
local function parent_of(key, arg, parent_key)
  local base, parent_id = split_job_key(arg, parent_key)
  return keys_at(key, arg, base), parent_id
end

-- Deletes the keys of a job. Returns how many of them existed.
local function unlink_job(job_key)
  return redis.call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs', job_key .. ':dependencies',
    job_key .. ':processed', job_key .. ':failed', job_key .. ':unsuccessful')
end

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

-- Of the given waiting parents, moves each that has no unfinished child to the waiting or, if it has a delay,
-- the delayed jobs, in their order.
local function release_jobs(key, arg, ids, now)
  for _, id in ipairs(ids) do
    local job_key = arg.base .. id
    if redis.call('SCARD', job_key .. ':dependencies') == 0 then
      release_parent(key, arg, job_key, id, key.waiting_children, now, 'LPUSH')
    end
  end
  redis.call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
end

-- Removes a deleted job from the dependencies of its parent. A parent that has no dependencies left becomes the next
-- job, even if others have a higher priority, as in Node; with `together` (many jobs are deleted at once), a parent of
-- the same queue is deleted, too, and leaves its own parent; a relay is marked to do the same to its dependents.
-- Returns whether the job was among the dependencies, and how many parents were deleted. It is a loop, as a sequence
-- can have more jobs than Lua's stack.
local function leave_parent(key, arg, job_key, parent_key, together)
  local call, was_child, deleted = redis.call, false, 0
  while parent_key and call('EXISTS', parent_key) == 1
    and call('SREM', parent_key .. ':dependencies', job_key) == 1 do
    was_child = true
    local base, parent_id = split_job_key(arg, parent_key)
    local keys = keys_at(key, arg, base)
    if call('SCARD', parent_key .. ':dependencies') > 0 or call('ZREM', keys.waiting_children, parent_id) == 0 then
      break
    end
    if not (together and base == arg.base) then
      enqueue_job(keys, arg.bullmq_version, parent_id, 0, 'RPUSH')
      if together and base == key.relays .. ':' then
        call('HSET', parent_key, 'removed', '1')
      elseif not together then
        emit(keys, arg, 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
      end
      break
    end
    local fields = call('HMGET', parent_key, 'parentKey', 'deid')
    free_deduplication(base, parent_id, fields[2])
    unlink_job(parent_key)
    deleted = deleted + 1
    job_key, parent_key = parent_key, fields[1]
  end
  return was_child, deleted
end

-- Moves jobs that have left `active` to `waiting-children`. Returns the ones without unfinished children, which run
-- again.
local function wait_for_children(key, arg, ids, mine, now)
  local call, ready = redis.call, {}
  for _, id in ipairs(ids) do
    if mine[id] and call('EXISTS', arg.base .. id .. ':dependencies') == 1 then
      call('ZADD', key.waiting_children, string.format('%.0f', now), id)
      emit(key, arg, 'waiting-children', 'jobId', id, 'prev', 'active')
    elseif mine[id] then
      ready[#ready + 1] = id
    end
  end
  return ready
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

local family = {child_completed = child_completed, child_failed = child_failed}
