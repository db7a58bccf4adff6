-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due. While jobs have expired, it
-- does so only after the script `expire` (`after_expiry`), as it would move some of them.
-- @returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms}
-- @include lib: waiting(promote_due_once)
-- @include {dialect}/lib: waiting(promote_due_jobs)

return promote_due_once(key, arg, function(now)
  return promote_due_jobs(key, arg, now, tonumber(arg.limit))
end)
