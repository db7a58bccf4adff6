-- Lets delayed jobs that are due wait for a worker, in the order in which they are due.
-- @keys receipt delayed wait paused meta_paused priority
-- @args base token call ttl_ms limit
-- @returns {how many came, when the next one is due in ms or '', now in ms}
-- @include bull/lib/promote_due_jobs
-- @include lib/once
-- @include lib/time_ms

local now = time_ms()
return once(key.receipt, arg.call, arg.ttl_ms, function()
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit), function(id)
    redis.call('PUBLISH', arg.base .. 'waiting@' .. arg.token, id)
  end)
  return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
end)
