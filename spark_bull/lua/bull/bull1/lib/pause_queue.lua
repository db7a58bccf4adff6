-- @include lib: join_lists

-- Pauses a queue by moving its jobs to `paused`, which workers do not read. `repeats`: whether the event is also
-- published if the queue is paused already.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, _, limit, repeats)
  if redis.call('SETNX', key.meta_paused, 1) == 1 or repeats then
    redis.call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end
