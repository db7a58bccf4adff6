-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due, and marks jobs that have
-- expired: they fail instead of being run.
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms, number of expired jobs}
-- @include bullmq/lib: expire_jobs promote_due_jobs waiting_list
-- @include lib: promote_due_once

return promote_due_once(key, arg, function(now)
  local _, paused_or_full = waiting_list(key, arg.bullmq_version)
  local next_expiry, expired = expire_jobs(key, arg, now, tonumber(arg.limit))
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit))
  if next_due and not paused_or_full then
    redis.call('ZADD', key.marker, next_due, '1')
  end
  return next_due, moved, next_expiry, expired
end)
