-- What is done with single jobs of any state.
-- @include lib: add_jobs(holds_deduplication)
-- @include lib: manage(finish_unclaimed managed_jobs mismatch_by move_job plain_actions)
-- @include lib: values(priority_of push_of) waiting(search_steps)
-- @include bull/lib: remove(remove_job) waiting(priority_inserts waiting_list)
-- @include {dialect}/lib: remove(remove_jobs) settle_jobs(clear_outcome finished_state)
-- @include {dialect}/lib: waiting(announce_waiting leave_wait)

-- Actions that no job with a lock allows.
local NEEDS_UNLOCKED = {retry = true, remove = true, fail = true, complete = true, move = true}

-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(key, id)
  local has = finished_state.has
  return has(key.completed, id) and 'completed' or has(key.failed, id) and 'failed'
    or call('ZSCORE', key.delayed, id) and 'delayed' or 'unknown'
end

-- `change.from`: the state of a job to retry, nil: failed; in other changes, what sorted_state returned when the job was
-- found, nil: any.
local function is_in_wrong_state(key, change)
  local action, id, has = change.action, change.id, finished_state.has
  if action == 'retry' then
    return (change.from or 'failed') ~= 'failed' or not has(key.failed, id)
  elseif change.from and sorted_state(key, id) ~= change.from then
    return true
  elseif action == 'promote' then
    return not call('ZSCORE', key.delayed, id)
  elseif action == 'delay' or action == 'fail' or action == 'complete' then
    return has(key.completed, id) or has(key.failed, id)
  elseif action == 'free' then
    return not holds_deduplication(change)
  end
end

local function refusal_by_lock(change)
  return NEEDS_UNLOCKED[change.action] and call('EXISTS', change.key .. ':lock') == 1 and 'locked' or nil
end

-- Why a job can't be changed, or nil; see manage_jobs.
local function mismatch_of(key, arg)
  return mismatch_by(arg.base, refusal_by_lock, function(change)
    return is_in_wrong_state(key, change)
  end)
end

-- Changes the priority of a job; one that may wait takes its new place, the first of that priority with `lifo`.
local function prioritize_job(key, change, may_wait)
  local target, priority = waiting_list(key), change.priority
  if may_wait and call('LREM', target, -1, change.id) == 1 then
    call('ZREM', key.priority, change.id)
    local job = {id = change.id, priority = priority}
    if priority == 0 then
      call(change.lifo and 'RPUSH' or 'LPUSH', target, change.id)
    elseif change.lifo then
      priority_inserts.near(key, target, {job}, 0)
    else
      priority_inserts.many(key, target, {job})
    end
  end
  call('HSET', change.key, 'priority', priority)
end

-- Moves a failed job back to the waiting ones. `change`: {id, reset_attempts: whether its attempts count from 0 again,
-- lifo: whether it is the next one, nil: by its options}. The job does not expire any more.
local function retry_job(key, arg, change)
  local id, job_key, lifo = change.id, arg.base .. change.id, change.lifo
  local opts = call('HGET', job_key, 'opts')
  call(finished_state.take, key.failed, id)
  call('HDEL', job_key, 'expireAt')
  if change.reset_attempts then
    call('HSET', job_key, 'attemptsMade', '0')
  end
  call(lifo == nil and push_of(opts) or lifo and 'RPUSH' or 'LPUSH', waiting_list(key), id)
  clear_outcome(job_key)
  announce_waiting(key, arg, id)
end

-- The actions of Bull, by their names; see manage_jobs.
local function manage_actions(key, arg, now)
  local take, actions = finished_state.take, plain_actions(key, arg, now)
  local lists = {key.wait, key.paused, key.active}

  local function is_sorted(id)
    return sorted_state(key, id) ~= 'unknown'
  end

  -- Takes a job out of its state. Returns 'open' when that is a list that is too long for the rest of this script,
  -- 'wrong_state' when the job is in no state.
  local function leave_state(change, share)
    local id = change.id
    local sorted = is_sorted(id)
    if not sorted and not managed_jobs.takes_steps(share, search_steps(lists, id)) then
      return 'open'
    end
    local gone = call(take, key.completed, id) + call(take, key.failed, id) + call('ZREM', key.delayed, id)
    for i = 1, gone == 0 and #lists or 0 do
      gone = gone == 0 and call('LREM', lists[i], -1, id) or gone
    end
    if gone == 0 then
      return 'wrong_state'
    end
    leave_wait(key, {id})
  end

  -- Whether the script may insert a job into this list; one with a priority has its place in it.
  local function takes_place(change, share, list)
    return priority_of(change.key) == 0 or managed_jobs.takes_steps(share, call('LLEN', list))
  end

  local promote = actions.promote
  function actions.promote(change, share)
    return takes_place(change, share, waiting_list(key)) and promote(change) or 'open'
  end

  local delay = actions.delay
  function actions.delay(change, share)
    local id = change.id
    if not call('ZSCORE', key.delayed, id) then
      if not managed_jobs.takes_steps(share, search_steps({key.wait, key.paused}, id)) then
        return 'open'
      end
      if call('LREM', key.wait, -1, id) + call('LREM', key.paused, -1, id) == 0 then
        return 'wrong_state'
      end
      leave_wait(key, {id})
    end
    return delay(change)
  end

  function actions.prioritize(change, share)
    local may_wait = not is_sorted(change.id)
    if may_wait and not managed_jobs.takes_steps(share, 2 * call('LLEN', waiting_list(key))) then
      return 'open'
    end
    prioritize_job(key, change, may_wait)
    return 'done'
  end

  function actions.remove(change, share)
    local steps = is_sorted(change.id) and 0 or call('LLEN', key.wait) + call('LLEN', key.paused)
    if not managed_jobs.takes_steps(share, steps) then
      return 'open'
    end
    return remove_job(key, arg, change.id)
  end

  local function finish(change, share)
    return leave_state(change, share) or finish_unclaimed(key, arg, {change}, now)[change.id] and 'done' or 'wrong_state'
  end
  actions.fail, actions.complete = finish, finish

  function actions.move(change, share)
    local is_completed = finished_state.has(key.completed, change.id)
    local refused = not takes_place(change, share, change.to_base .. 'wait') and 'open' or leave_state(change, share)
    if refused then
      return refused
    end
    move_job(key, arg, change, now, is_completed)
    remove_jobs(key, arg, {change.id})
    return 'done'
  end

  return actions
end
