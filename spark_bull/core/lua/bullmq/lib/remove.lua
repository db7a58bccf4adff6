-- Jobs are removed.
-- @include lib: jobs(job_row) other_queues(keys_at) waiting(search_steps)
-- @include bullmq/lib: deduplication(free_deduplication) events(event_limit)
-- @include bullmq/lib: parents(allow_wrongtype leave_parent split_job_key unlink_job)

-- Maximum number of levels of children that a script walks: a sequence of jobs can have more than Lua's stack.
local MAX_DEPTH = 1000

-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(keys, job_id)
  local function has(state)
    return redis.call('ZSCORE', state, job_id)
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
    redis.call('ZREM', key[state], job_id)
    return string.gsub(state, '_', '-') .. ''
  end
  for _, name in ipairs(LISTS) do
    if redis.call('LREM', key[name], -1, job_id) == 1 then
      return name
    end
  end
  return 'unknown'
end

-- Removes a job {key, id, base, keys, state} from its state, frees its deduplication id, and publishes that it was
-- removed. A parent that has lost its last child has left `waiting-children`.
local function remove_from_state(job, deduplication_id)
  local call = redis.call
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
  local call = redis.call
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
  local scanned = redis.call('SSCAN', job_key .. ':dependencies', position, 'COUNT', size)
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
