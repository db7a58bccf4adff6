-- @include lib: numbers(time_ms) obliterate(remove_members)
-- @include bullmq/lib: pause(pause_queue) relays(run_relays) remove(remove_jobs)

local function remove_schedulers(key, ids)
  for _, scheduler in ipairs(ids) do
    redis.call('UNLINK', key.repeats .. ':' .. scheduler)
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
  if redis.call('EXISTS', key.relay_wait) == 1 then
    -- Dependents of completed jobs are waiting now, and are removed as such by the next call.
    run_relays(key, arg, time_ms())
    is_open = true
  end
  if is_open then
    return 'open'
  end
  redis.call('UNLINK',
    key.id, key.pc, key.meta, key.events, key.marker, key.stalled, key.stalled_check, key.limiter,
    key.rate_limited,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.group_own, key.group_checks,
    key.sequence_tails, key.expiry,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data)
  return 'done'
end
