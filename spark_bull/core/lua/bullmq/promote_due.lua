-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due. While jobs have expired, it
-- does so only after the script `expire` (`after_expiry`), as it would move some of them. Before, it lets jobs go on
-- that depend on ended ones by relays.
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms}
-- @include lib: values(time_ms) waiting(promote_due_once)
-- @include bullmq/lib: dependents(run_relays) waiting(promote_due_jobs waiting_list)

local more_relays = run_relays(key, arg, time_ms())

return promote_due_once(key, arg, function(now)
  local _, paused_or_full = waiting_list(key, arg.bullmq_version)
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit))
  if next_due and not paused_or_full then
    call('ZADD', key.marker, next_due, '1')
  end
  return more_relays and now or next_due, moved
end)
