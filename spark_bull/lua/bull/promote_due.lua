-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due, and fails jobs that have
-- expired.
-- @args base token call ttl_ms limit
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms, number of expired jobs}
-- @include bull/lib/expire_jobs
-- @include bull/lib/leave_limiter
-- @include bull/lib/promote_due_jobs
-- @include bull/lib/unrun_failures
-- @include lib/promote_due_once

return promote_due_once(key, arg, function(now)
  local fail = unrun_failures(key, arg, now)
  local next_expiry, expired = expire_jobs(key, arg, now, 'processedOn', function(id)
    redis.call('ZREM', key.priority, id)
    leave_limiter(key, {id})
    fail(id, 'expired')
  end)
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit), function(id)
    redis.call('PUBLISH', arg.base .. 'waiting@' .. arg.token, id)
  end)
  return next_due, moved, next_expiry, expired
end)
