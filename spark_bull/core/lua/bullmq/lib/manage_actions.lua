-- @include lib: finish_unclaimed managed_jobs move_job plain_actions search_steps
-- @include bullmq/lib: event_limit free_deduplication leave_any_state prioritize_job remove_tree remove_unfinished
-- @include bullmq/lib: sorted_state unlink_job waiting_list

-- Children that one SSCAN returns.
local CHILDREN = 500

-- The actions of BullMQ, by their names; see manage_jobs.
local function manage_actions(key, arg, now)
  local call, actions = redis.call, plain_actions(key, arg, now)

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
    move_job(key, arg, change, now)
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
