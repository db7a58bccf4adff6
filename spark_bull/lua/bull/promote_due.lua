-- Moves delayed jobs that are due to the waiting ones, in the order in which they are due.
-- @keys receipt delayed wait paused meta_paused priority
-- @args base token call ttl_ms limit
-- @returns {number of promoted jobs, when the next one is due, ms, or '', now in ms}
-- @include bull/lib/promote_due_jobs
-- @include lib/promote_due_once

return promote_due_once(key, arg, function(now)
  return promote_due_jobs(key, arg, now, tonumber(arg.limit), function(id)
    redis.call('PUBLISH', arg.base .. 'waiting@' .. arg.token, id)
  end)
end)
