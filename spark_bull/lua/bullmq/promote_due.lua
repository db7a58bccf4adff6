-- Lets delayed jobs that are due wait for a worker, in the order in which they are due.
-- @keys receipt delayed wait paused active prioritized pc meta events marker
-- @args base bullmq_version call ttl_ms limit
-- @returns {how many came, when the next one is due in ms or '', now in ms}
-- @include bullmq/lib/promote_due_jobs
-- @include bullmq/lib/waiting_list
-- @include lib/once
-- @include lib/time_ms

local now = time_ms()
return once(key.receipt, arg.call, arg.ttl_ms, function()
  local _, paused_or_full = waiting_list(key, arg.bullmq_version)
  local next_due, moved = promote_due_jobs(key, arg, now, tonumber(arg.limit))
  if next_due and not paused_or_full then
    redis.call('ZADD', key.marker, next_due, '1')
  end
  return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
end)
