-- @include bull/lib/delay_job
-- @include bull/lib/mismatch_of
-- @include bull/lib/remove_job
-- @include bull/lib/retry_job
-- @include bull/lib/waiting_list
-- @include lib/finish_unclaimed
-- @include lib/managed_jobs
-- @include lib/move_job
-- @include lib/plain_actions
-- @include lib/priority_of
-- @include lib/search_steps

-- What differs between the dialects of Bull is in `own`: `take`, the command that removes a member of `completed` and
-- `failed`, ZREM or SREM; `is_in(state, id)`, for these states; and functions of the verbs.
local function actions_of(key, arg, now, own)
  local call, actions = redis.call, plain_actions(key, arg, now, delay_job, own.enqueue_promoted)
  local lists = {key.wait, key.paused, key.active}

  local function is_sorted(id)
    return own.is_in(key.completed, id) or own.is_in(key.failed, id) or call('ZSCORE', key.delayed, id)
  end

  -- Takes a job out of its state. Returns 'open' when that is a list that is too long for the rest of this script,
  -- 'wrong_state' when the job is in no state.
  local function leave_state(change, share)
    local id = change.id
    local sorted = is_sorted(id)
    if not sorted and not managed_jobs.takes_steps(share, search_steps(lists, id)) then
      return 'open'
    end
    local gone = call(own.take, key.completed, id) + call(own.take, key.failed, id) + call('ZREM', key.delayed, id)
    for i = 1, gone == 0 and #lists or 0 do
      gone = gone == 0 and call('LREM', lists[i], -1, id) or gone
    end
    if gone == 0 then
      return 'wrong_state'
    end
    own.left_queue(key, id)
  end

  -- Whether the script may insert a job into this list; one with a priority has its place in it.
  local function takes_place(change, share, list)
    return priority_of(change.key) == 0 or managed_jobs.takes_steps(share, call('LLEN', list))
  end

  local promote = actions.promote
  function actions.promote(change, share)
    return takes_place(change, share, waiting_list(key)) and promote(change) or 'open'
  end

  function actions.retry(change)
    return retry_job(key, arg, change.id, own.take, own.retried, change.reset_attempts, change.lifo)
  end

  function actions.prioritize(change, share)
    local may_wait = not is_sorted(change.id)
    if may_wait and not managed_jobs.takes_steps(share, 2 * call('LLEN', waiting_list(key))) then
      return 'open'
    end
    own.prioritize(key, change, may_wait)
    return 'done'
  end

  function actions.remove(change, share)
    local steps = is_sorted(change.id) and 0 or call('LLEN', key.wait) + call('LLEN', key.paused)
    if not managed_jobs.takes_steps(share, steps) then
      return 'open'
    end
    return remove_job(key, arg, change.id, own.take, own.remove_jobs)
  end

  local function finish(change, share)
    return leave_state(change, share) or finish_unclaimed(key, arg, change, now, own.settle_jobs, own.keep_of)
  end
  actions.fail, actions.complete = finish, finish

  function actions.move(change, share)
    local refused = not takes_place(change, share, change.to_base .. 'wait') and 'open' or leave_state(change, share)
    if refused then
      return refused
    end
    move_job(key, arg, change, now, own.add_jobs)
    own.remove_jobs(key, arg, {change.id})
    return 'done'
  end

  return actions
end

local function managing(key, arg, own)
  return function(chunk, from, now)
    return managed_jobs.manage(arg, chunk, from, mismatch_of(key, own.is_in), actions_of(key, arg, now, own))
  end
end
