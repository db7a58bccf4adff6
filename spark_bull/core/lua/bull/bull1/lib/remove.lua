-- Jobs and queues are removed.
-- @include bull/lib: remove(obliterate_bull)

-- Deletes the keys of jobs that have left their state.
local function remove_jobs(_, arg, ids)
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    -- Bull 1 has no logs, but workers of Spark write them.
    call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs')
  end
end

-- Returns what obliterate_bull does.
local function obliterate_queue(key, arg)
  return obliterate_bull(key, arg, {
    key.id, key.meta_paused, key.rate_limited, key.expiry, key.expired,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.group_own, key.group_checks,
  })
end
