-- @include lib: jobs(job_row) other_queues(keys_at) waiting(search_steps)
-- @include bullmq/lib: jobs(is_scheduled_job) parents(allow_wrongtype leave_parent split_job_key)
-- @include bullmq/lib: remove(leave_any_state MAX_DEPTH remove_from_state sorted_state)

local function children_of(job_key, limit)
  local call = redis.call
  -- Few jobs have children.
  if call('EXISTS', job_key .. ':dependencies', job_key .. ':processed', job_key .. ':failed',
    job_key .. ':unsuccessful') == 0 then
    return {}
  end
  local children = call('SRANDMEMBER', job_key .. ':dependencies', limit)
  local finished = {
    call('HRANDFIELD', job_key .. ':processed', limit),
    call('HRANDFIELD', job_key .. ':failed', limit),
    call('ZRANGE', job_key .. ':unsuccessful', 0, limit - 1),
  }
  for _, keys in ipairs(finished) do
    for _, child_key in ipairs(keys) do
      children[#children + 1] = child_key
    end
  end
  return children
end

-- How many entries of lists have to be searched for a job.
local function steps_of(keys, job_id, state)
  return state == 'unknown' and search_steps({keys.wait, keys.paused, keys.active}, job_id) or 0
end

-- Appends a job after its descendants (if `with_children`) to `found`, within the budget of one script: `share` {jobs,
-- steps, is_first: whether the first job may take more steps, path: the set of its ancestors}. `depth`: the level of the
-- job, from 1. Returns whether the budget sufficed; sets `share.locked` to the key of a job with a lock, `share.is_deep`
-- for a tree with too many levels.
local function gather_tree(key, arg, found, share, parent_key, job_key, with_children, depth)
  local call = redis.call
  if share.path[job_key] then
    if share.jobs == 0 then
      return false
    end
    share.jobs = share.jobs - 1
    found[#found + 1] = {key = job_key, parent_key = parent_key, is_ancestor = true}
    return true
  end
  if call('EXISTS', job_key .. ':lock') == 1 then
    share.locked = job_key
    return false
  end
  if depth > MAX_DEPTH then
    share.is_deep = true
    return false
  end
  if with_children then
    share.path[job_key] = true
    for _, child_key in ipairs(children_of(job_key, share.jobs + 1)) do
      if not gather_tree(key, arg, found, share, job_key, child_key, true, depth + 1) then
        return false
      end
    end
    share.path[job_key] = nil
  end
  local base, job_id = split_job_key(arg, job_key)
  local keys = keys_at(key, arg, base)
  local state, steps = 'unknown', 0
  if call('EXISTS', job_key) == 1 then
    state = sorted_state(keys, job_id)
    steps = steps_of(keys, job_id, state)
  end
  if share.jobs == 0 or (steps > share.steps and not (share.is_first and #found == 0)) then
    return false
  end
  share.jobs, share.steps = share.jobs - 1, share.steps - steps
  found[#found + 1] = {key = job_key, parent_key = parent_key, id = job_id, base = base, keys = keys, state = state}
  return true
end

local function forget_child(parent_key, job_key)
  local call = redis.call
  call('SREM', parent_key .. ':dependencies', job_key)
  call('HDEL', parent_key .. ':processed', job_key)
  call('HDEL', parent_key .. ':failed', job_key)
  call('ZREM', parent_key .. ':unsuccessful', job_key)
end

-- `removed`: the keys of all jobs that this call removes. As in Node, a parent among them starts before it is removed;
-- one that a later call removes must not. In a cycle, an ancestor only leaves its parent, and is removed later.
local function remove_of_tree(key, arg, job, removed)
  local fields = job_row(job.key, 'parentKey', 'deid') or {}
  if removed[job.parent_key] then
    leave_parent(key, arg, job.key, job.parent_key, false)
  end
  if job.parent_key then
    forget_child(job.parent_key, job.key)
  elseif fields[1] then
    allow_wrongtype(leave_parent, key, arg, job.key, fields[1], false)
  end
  if not job.is_ancestor then
    remove_from_state(job, fields[2])
  end
end

-- Removes a job and, if `with_children`, its descendants, children before parents, within the budget `share` of one
-- script; see gather_tree. Returns 'done' (also when only the id existed), 'open' (call again), 'missing', 'scheduled',
-- 'wrong_state' (the tree has too many levels), or 'locked' and the key of the locked job.
local function remove_tree(key, arg, job_id, with_children, share)
  local job_key = arg.base .. job_id
  if redis.call('EXISTS', job_key) == 0 then
    -- An id without a job leaves its state.
    local state = sorted_state(key, job_id)
    local steps = steps_of(key, job_id, state)
    if steps > share.steps and not share.is_first then
      return 'open'
    end
    share.steps = share.steps - steps
    return leave_any_state(key, job_id, state) == 'unknown' and 'missing' or 'done'
  end
  if is_scheduled_job(key, arg, job_id) then
    return 'scheduled'
  end
  local found, removed = {}, {}
  share.locked, share.is_deep, share.path = nil, nil, {}
  local all = gather_tree(key, arg, found, share, nil, job_key, with_children, 1)
  if share.is_deep then
    return 'wrong_state'
  end
  if share.locked then
    return 'locked', share.locked
  end
  for _, job in ipairs(found) do
    removed[job.key] = removed[job.key] or not job.is_ancestor
  end
  for _, job in ipairs(found) do
    remove_of_tree(key, arg, job, removed)
  end
  return all and 'done' or 'open'
end
