-- A queue is paused and resumed.
-- @include lib: waiting(join_lists)

-- Pauses a queue by moving its jobs to `paused`, which workers do not read. `repeats`: whether the event is also
-- published if the queue is paused already. A pause of a guard becomes one that no guard ends; see lib/guard.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, _, limit, repeats)
  local is_new = redis.call('EXISTS', key.meta_paused) == 0
  redis.call('SET', key.meta_paused, 1)
  if is_new or repeats then
    redis.call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end

local function resume_queue(key)
  redis.call('DEL', key.meta_paused)
  redis.call('PUBLISH', key.paused, 'resumed')
end
