-- A queue is removed.
-- @include lib: obliterate(remove_members)
-- @include {dialect}/lib: finished(finished_state) pause(pause_queue) remove(remove_jobs)

-- Pauses a queue of Bull and removes a portion of its jobs, in any state; once there are none, the `rest` of its keys.
-- Returns 'open' while there is more to remove, then 'done'.
local function obliterate_bull(key, arg, rest)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, arg, tonumber(arg.move)) > 0 or remove_members({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, finished_state.kind, remove},
    {key.failed, finished_state.kind, remove},
    {key.damaged, 'hash', remove},
  }, tonumber(arg.limit)) then
    return 'open'
  end
  redis.call('UNLINK', unpack(rest))
  return 'done'
end

-- Returns what obliterate_bull does.
local function obliterate_queue(key, arg)
  return obliterate_bull(key, arg, {
    key.priority, key.id, key.meta, key.meta_paused, key.stalled, key.stalled_check, key.repeats,
    key.limiter, key.limiter_index, key.rate_limited, key.expiry, key.expired,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.group_own, key.group_checks,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data,
  })
end
