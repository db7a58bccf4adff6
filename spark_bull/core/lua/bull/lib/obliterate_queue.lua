-- @include bull/lib: obliterate_bull

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
