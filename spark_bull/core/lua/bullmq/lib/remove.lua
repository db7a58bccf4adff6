-- Jobs and queues are removed.
-- @include lib: jobs(job_row keys_at) remove(remove_members) values(time_ms) waiting(search_steps)
-- @include bullmq/lib: deduplication(free_deduplication) dependents(cut_sequence run_relays) events(event_limit)
-- @include bullmq/lib: flows(allow_wrongtype leave_parent split_job_key unlink_job)
-- @include bullmq/lib: remove(leave_any_state MAX_DEPTH remove_from_state remove_jobs sorted_state)
-- @include bullmq/lib: schedules(is_scheduled_job) waiting(pause_queue)

-- Maximum number of levels of children that a script walks: a sequence of jobs can have more than Lua's stack.
local MAX_DEPTH = 1000

-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(keys, job_id)
  local function has(state)
    return call('ZSCORE', state, job_id)
  end
  return has(keys.completed) and 'completed' or has(keys.waiting_children) and 'waiting_children'
    or has(keys.delayed) and 'delayed' or has(keys.failed) and 'failed' or has(keys.prioritized) and 'prioritized'
    or 'unknown'
end

local LISTS = {'wait', 'paused', 'active'}

-- Removes a job from its state, see sorted_state. Lists are searched from the end from which jobs are claimed. Returns
-- the name of the state.
local function leave_any_state(key, job_id, state)
  if state ~= 'unknown' then
    call('ZREM', key[state], job_id)
    return string.gsub(state, '_', '-') .. ''
  end
  for _, name in ipairs(LISTS) do
    if call('LREM', key[name], -1, job_id) == 1 then
      return name
    end
  end
  return 'unknown'
end

-- Removes a job {key, id, base, keys, state} from its state, frees its deduplication id, and publishes that it was
-- removed. A parent that has lost its last child has left `waiting-children`.
local function remove_from_state(job, deduplication_id)
  local state = job.state == 'waiting_children' and sorted_state(job.keys, job.id) or job.state
  free_deduplication(job.base, job.id, deduplication_id)
  local prev = leave_any_state(job.keys, job.id, state)
  if unlink_job(job.key) > 0 then
    call('XADD', job.keys.events, 'MAXLEN', '~', event_limit(job.keys), '*', 'event', 'removed',
      'jobId', job.id, 'prev', prev)
  end
end

-- Deletes the keys of jobs that have left their state.
local function remove_jobs(key, arg, ids)
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    local fields = job_row(job_key, 'parentKey', 'deid') or {}
    if fields[1] then
      allow_wrongtype(leave_parent, key, arg, job_key, fields[1], true)
    end
    free_deduplication(arg.base, job_id, fields[2])
    unlink_job(job_key)
  end
end

-- Removes a job that has not ended, unless more list entries must be searched than `steps`; the first one in any case.
-- Returns what is left of `steps`; below 0, a job that is not the first one is still there.
local function remove_call(key, arg, job_id, steps, is_first)
  local job_key, state = arg.base .. job_id, sorted_state(key, job_id)
  if state == 'unknown' then
    steps = steps - search_steps({key.wait, key.paused, key.active}, job_id)
  end
  if steps >= 0 or is_first then
    local fields = job_row(job_key, 'deid') or {}
    remove_from_state({key = job_key, id = job_id, base = arg.base, keys = key, state = state}, fields[1])
  end
  return steps
end

-- Appends an unfinished child after its descendants to `found`, within the budget of one script: `share` {jobs, steps,
-- seen}. `size`: number of children that are scanned at once; `depth`: the level of the child, from 1. Returns whether
-- the budget sufficed; sets `share.is_deep` when the tree has too many levels.
local function gather_unfinished(key, arg, found, share, parent_key, job_key, size, depth)
  local base, job_id = split_job_key(arg, job_key)
  local keys = keys_at(key, arg, base)
  share.steps = share.steps - 1
  -- A member that stands for jobs that a write has still to add is no job.
  local is_pending = string.sub(job_id, 1, 6) == 'spark:'
  if is_pending or share.seen[job_key] or call('EXISTS', job_key .. ':lock') == 1
    or call('ZSCORE', keys.failed, job_id) then
    return true
  end
  if depth > MAX_DEPTH then
    share.is_deep = true
    return false
  end
  share.seen[job_key] = true
  local cursor = call('EXISTS', job_key .. ':dependencies') == 1 and '0' or nil
  while cursor and share.steps >= 0 do
    local scanned = call('SSCAN', job_key .. ':dependencies', cursor, 'COUNT', size)
    for _, child_key in ipairs(scanned[2]) do
      if not gather_unfinished(key, arg, found, share, job_key, child_key, size, depth + 1) then
        return false
      end
    end
    cursor = scanned[1] ~= '0' and scanned[1] or nil
  end
  local state = sorted_state(keys, job_id)
  if state == 'unknown' then
    share.steps = share.steps - search_steps({keys.wait, keys.paused, keys.active}, job_id)
  end
  if share.jobs == 0 or (share.steps < 0 and #found > 0) then
    return false
  end
  share.jobs = share.jobs - 1
  found[#found + 1] = {key = job_key, parent_key = parent_key, id = job_id, base = base, keys = keys, state = state}
  return true
end

-- Removes those descendants of a job that have not ended and that no worker has locked, children before parents, of the
-- children that one SSCAN from `position` returns. Returns the next position, '' at the end, and the number of removed
-- jobs.
local function remove_unfinished(key, arg, job_key, position, size, share)
  local scanned = call('SSCAN', job_key .. ':dependencies', position, 'COUNT', size)
  local found, all = {}, true
  for _, child_key in ipairs(scanned[2]) do
    all = all and gather_unfinished(key, arg, found, share, job_key, child_key, size, 1)
  end
  for _, job in ipairs(found) do
    leave_parent(key, arg, job.key, job.parent_key, false)
    local fields = job_row(job.key, 'deid') or {}
    remove_from_state(job, fields[1])
  end
  if not all and #found > 0 then
    return position, #found
  end
  return scanned[1] == '0' and '' or scanned[1], #found
end

local function children_of(job_key, limit)
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
  if call('EXISTS', job_key) == 0 then
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

local function remove_schedulers(key, ids)
  for _, scheduler in ipairs(ids) do
    call('UNLINK', key.repeats .. ':' .. scheduler)
  end
end

-- Pauses a queue, then removes its next jobs, and finally its other keys. A parent is removed with its last child; one
-- that waits for children of another queue stays, as in BullMQ, and runs when they have finished. The jobs that depend
-- on a removed one by a relay are removed here, as no promoter may be there.
-- Returns 'open' while there is more to remove, then 'done'.
local function obliterate_queue(key, arg)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, arg, tonumber(arg.move)) > 0 then
    return 'open'
  end
  local is_open = remove_members({
    {key.active, 'list', remove},
    {key.delayed, 'zset', remove},
    {key.repeats, 'zset', function(ids)
      remove_schedulers(key, ids)
    end},
    {key.completed, 'zset', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.prioritized, 'zset', remove},
    {key.failed, 'zset', remove},
    {key.damaged, 'hash', remove},
  }, tonumber(arg.limit))
  if call('EXISTS', key.relay_wait) == 1 then
    -- Dependents of completed jobs are waiting now, and are removed as such by the next call.
    run_relays(key, arg, time_ms())
    is_open = true
  end
  if is_open then
    return 'open'
  end
  call('UNLINK',
    key.id, key.pc, key.meta, key.events, key.marker, key.stalled, key.stalled_check, key.limiter,
    key.rate_limited,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.group_own, key.group_checks,
    key.sequence_tails, key.expiry,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data)
  return 'done'
end

-- Returns the function of an id that says which jobs `drain` removes, see sweep: all but the next jobs of schedulers.
local function drained_test(key, arg)
  local has_schedulers = call('EXISTS', key.repeats) == 1
  local has_parents = call('EXISTS', key.waiting_children) == 1
  return function(job_id)
    if has_schedulers and is_scheduled_job(key, arg, job_id) then
      return false
    end
    return has_parents and cut_sequence(key, arg, job_id) and 'again' or true
  end
end
