-- What is done with single jobs of any state.
-- @include lib: add_jobs(holds_deduplication)
-- @include lib: manage(finish_unclaimed managed_jobs mismatch_by move_job plain_actions)
-- @include lib: values(push_of whole_number) waiting(search_steps)
-- @include bullmq/lib: deduplication(free_deduplication) events(emit_trimmed event_limit major_version meta_of)
-- @include bullmq/lib: flows(allow_wrongtype unlink_job)
-- @include bullmq/lib: remove(leave_any_state remove_tree remove_unfinished sorted_state)
-- @include bullmq/lib: schedules(is_scheduled_job) waiting(enqueue_job priority_score waiting_list)

-- Actions that no job with a lock, or made by a job scheduler, allows.
local TAKES_JOB = {remove = true, fail = true, complete = true, move = true}

local function has_relatives(change)
  local job_key = change.key
  return call('HEXISTS', job_key, 'parentKey') == 1 or call('EXISTS', job_key .. ':dependencies',
    job_key .. ':processed', job_key .. ':failed', job_key .. ':unsuccessful') > 0
end

-- The states of which a job must have one; others are found by the action itself. `change.from`: as in bull/lib.
local function is_in_wrong_state(key, change)
  local action, id = change.action, change.id
  if action == 'retry' then
    local from = change.from or 'failed'
    return not call('ZSCORE', from == 'completed' and key.completed or key.failed, id)
      or (from ~= 'failed' and from ~= 'completed')
  elseif change.from and sorted_state(key, id) ~= change.from then
    return true
  elseif action == 'promote' then
    return not call('ZSCORE', key.delayed, id)
  elseif action == 'delay' then
    return call('ZSCORE', key.completed, id) or call('ZSCORE', key.failed, id) or call('ZSCORE', key.waiting_children, id)
  elseif action == 'fail' or action == 'complete' then
    return call('ZSCORE', key.completed, id) or call('ZSCORE', key.failed, id)
      or call('ZSCORE', key.waiting_children, id)
      or (action == 'complete' and call('EXISTS', change.key .. ':dependencies', change.key .. ':unsuccessful') > 0)
  elseif action == 'move' then
    return call('ZSCORE', key.waiting_children, id) or has_relatives(change)
  elseif action == 'free' then
    return not holds_deduplication(change)
  end
end

-- Why a job can't be changed, or nil; see managed_jobs.manage.
local function mismatch_of(key, arg)
  local function refusal(change)
    if TAKES_JOB[change.action] then
      local is_locked = call('EXISTS', change.key .. ':lock') == 1
      return is_locked and 'locked' or is_scheduled_job(key, arg, change.id) and 'scheduled' or nil
    end
  end
  return mismatch_by(arg.base, refusal, function(change)
    return is_in_wrong_state(key, change)
  end)
end

-- Changes the priority of a job; one that waits takes its new place, the first of that priority with `lifo`. `state`: see
-- sorted_state.
local function prioritize_job(key, arg, job_id, priority, lifo, state)
  local is_listed = state == 'unknown' and call('LREM', waiting_list(key, arg.bullmq_version), -1, job_id) == 1
  if is_listed or (state == 'prioritized' and call('ZREM', key.prioritized, job_id) == 1) then
    if priority > 0 and lifo then
      call('ZADD', key.prioritized, priority_score(priority, 0), job_id)
    else
      enqueue_job(key, arg.bullmq_version, job_id, priority, lifo and 'RPUSH' or 'LPUSH')
    end
  end
  call('HSET', arg.base .. job_id, 'priority', priority)
  return 'done'
end

-- The field with the result or error of a finished job, by its state.
local OUTCOME_OF = {failed = 'failedReason', completed = 'returnvalue'}

local ATTEMPTS = {'atm', 'ats'}

-- Does not move the parent, which may have left `waiting-children`.
local function return_to_parent(job_key, parent_key, from)
  local removed = 0
  if from == 'failed' then
    removed = call('ZREM', parent_key .. ':unsuccessful', job_key) + call('HDEL', parent_key .. ':failed', job_key)
  else
    removed = call('HDEL', parent_key .. ':processed', job_key)
  end
  if removed > 0 then
    call('SADD', parent_key .. ':dependencies', job_key)
  end
end

-- Moves a finished job back to the waiting ones, and back into the dependencies of its parent. `change`: as in bull/lib,
-- and `from`: the state of the job, completed or else failed. It does not expire any more.
local function retry_job(key, arg, change)
  local job_id, from, lifo = change.id, change.from or 'failed', change.lifo
  local job_key = arg.base .. job_id
  local fields = call('HMGET', job_key, 'opts', 'parentKey', 'priority')
  call('ZREM', from == 'failed' and key.failed or key.completed, job_id)
  call('HDEL', job_key, 'finishedOn', 'processedOn', 'expireAt', OUTCOME_OF[from], unpack(change.reset_attempts and ATTEMPTS or {}))
  -- In BullMQ 5 the job loses its priority.
  local major = major_version(meta_of(key)[3], arg.bullmq_version)
  local push = lifo == nil and push_of(fields[1]) or lifo and 'RPUSH' or 'LPUSH'
  enqueue_job(key, arg.bullmq_version, job_id, major > 5 and whole_number(fields[3]) or 0, push)
  if fields[2] and call('EXISTS', fields[2]) == 1 then
    allow_wrongtype(return_to_parent, job_key, fields[2], from)
  end
  emit_trimmed(key, arg, 'waiting', 'jobId', job_id, 'prev', from)
end

-- Children that one SSCAN returns.
local CHILDREN = 500

-- The actions of BullMQ, by their names; see manage_jobs.
local function manage_actions(key, arg, now)
  local actions = plain_actions(key, arg, now)

  -- Takes a job out of its state; false when that is a list that is too long for the rest of this script.
  local function leave_state(change, share)
    local state = sorted_state(key, change.id)
    local lists = {key.wait, key.paused, key.active}
    if state == 'unknown' and not managed_jobs.takes_steps(share, search_steps(lists, change.id)) then
      return false
    end
    return leave_any_state(key, change.id, state)
  end

  function actions.prioritize(change, share)
    local target, state = waiting_list(key, arg.bullmq_version), sorted_state(key, change.id)
    if state == 'unknown' and not managed_jobs.takes_steps(share, search_steps({target}, change.id)) then
      return 'open'
    end
    return prioritize_job(key, arg, change.id, change.priority, change.lifo, state)
  end

  local delay = actions.delay
  function actions.delay(change, share)
    local id, state = change.id, sorted_state(key, change.id)
    if state == 'unknown' and not managed_jobs.takes_steps(share, search_steps({key.wait, key.paused}, id)) then
      return 'open'
    end
    local is_waiting = state == 'prioritized' and call('ZREM', key.prioritized, id) == 1
      or state == 'unknown' and (call('LREM', key.wait, -1, id) == 1 or call('LREM', key.paused, -1, id) == 1)
    return (is_waiting or state == 'delayed') and delay(change) or 'wrong_state'
  end

  function actions.remove(change, share)
    share.jobs = share.jobs or CHILDREN
    return (remove_tree(key, arg, change.id, true, share))
  end

  local function finish(change, share)
    local state = leave_state(change, share)
    if not state or state == 'unknown' then
      return state and 'wrong_state' or 'open'
    end
    return finish_unclaimed(key, arg, {change}, now)[change.id] and 'done' or 'wrong_state'
  end
  actions.fail, actions.complete = finish, finish

  function actions.move(change, share)
    local state = leave_state(change, share)
    if not state then
      return 'open'
    end
    move_job(key, arg, change, now, state == 'completed')
    free_deduplication(arg.base, change.id, call('HGET', change.key, 'deid'))
    unlink_job(change.key)
    call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'removed', 'jobId', change.id,
      'prev', state)
    return 'done'
  end

  function actions.discard_children(change, share)
    share.jobs, share.seen, share.is_deep = share.jobs or CHILDREN, share.seen or {}, nil
    local position, removed = '0', 0
    repeat
      local count
      position, count = remove_unfinished(key, arg, change.key, position, CHILDREN, share)
      removed = removed + count
    until position == '' or share.jobs == 0 or share.steps <= 0
    -- Children that stay must not be looked at for ever.
    return position ~= '' and removed > 0 and 'open' or share.is_deep and 'wrong_state' or 'done'
  end

  return actions
end
