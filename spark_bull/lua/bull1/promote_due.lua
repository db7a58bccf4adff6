-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due, and fails jobs that have
-- expired.
-- @args base queue token call ttl_ms limit
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms, number of expired jobs}
-- @include bull/lib/expire_jobs
-- @include bull/lib/promote_due_jobs
-- @include bull1/lib/fail_unrun
-- @include lib/promote_due_once

return promote_due_once(key, arg, function(now)
  local next_expiry, expired = expire_jobs(key, arg, now, 'lockAcquired', function(id)
    fail_unrun(key, arg, id, 'expired')
  end)
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit), function(id)
    redis.call('PUBLISH', key.jobs, id)
  end)
  return next_due, moved, next_expiry, expired
end)
