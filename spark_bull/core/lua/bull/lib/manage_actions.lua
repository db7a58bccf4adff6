-- @include lib: finish_unclaimed managed_jobs move_job plain_actions priority_of search_steps
-- @include bull/lib: prioritize_job remove_job waiting_list
-- @include {dialect}/lib: finished_state leave_wait remove_jobs

-- The actions of Bull, by their names; see manage_jobs.
local function manage_actions(key, arg, now)
  local call, take, actions = redis.call, finished_state.take, plain_actions(key, arg, now)
  local lists = {key.wait, key.paused, key.active}

  local function is_sorted(id)
    return finished_state.has(key.completed, id) or finished_state.has(key.failed, id) or call('ZSCORE', key.delayed, id)
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
    local refused = not takes_place(change, share, change.to_base .. 'wait') and 'open' or leave_state(change, share)
    if refused then
      return refused
    end
    move_job(key, arg, change, now)
    remove_jobs(key, arg, {change.id})
    return 'done'
  end

  return actions
end
