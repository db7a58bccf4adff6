-- @include lib: join_lists
-- @include bullmq/lib: waiting_list

-- Pauses a queue; for BullMQ 5, moves its jobs to `paused`. `repeats`: whether the event is also written if the queue
-- is paused already. A pause of a guard becomes one that no guard ends; see lib/guard_mark.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, arg, limit, repeats)
  if redis.call('HSET', key.meta, 'paused', 1) == 1 or repeats then
    redis.call('XADD', key.events, '*', 'event', 'paused')
  end
  redis.call('DEL', key.marker)
  if waiting_list(key, arg.bullmq_version) == key.paused then
    return join_lists(key, key.paused, limit)
  end
  return 0
end
