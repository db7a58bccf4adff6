-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due, and fails jobs that have
-- expired.
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms, number of expired jobs}
-- @include lib: promote_due_once
-- @include {dialect}/lib: expire_jobs promote_due_jobs

return promote_due_once(key, arg, function(now)
  local next_expiry, expired = expire_jobs(key, arg, now)
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit))
  return next_due, moved, next_expiry, expired
end)
