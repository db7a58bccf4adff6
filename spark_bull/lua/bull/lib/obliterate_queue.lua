-- @include bull/lib/obliterate_bull
-- @include bull/lib/pause_queue
-- @include bull/lib/remove_jobs

-- Returns what obliterate_bull does.
local function obliterate_queue(key, arg)
  return obliterate_bull(key, arg, pause_queue, remove_jobs, 'zset', {
    key.priority, key.id, key.meta, key.meta_paused, key.stalled, key.stalled_check, key.repeats,
    key.limiter, key.limiter_index, key.rate_limited, key.expiry, key.expired,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data,
  })
end
