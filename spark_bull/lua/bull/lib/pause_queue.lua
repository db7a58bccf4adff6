-- @include lib/join_lists

-- Pauses a queue by moving its jobs to `paused`, which workers do not read. The field in `meta` is for programs that
-- use BullMQ.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, limit)
  if redis.call('SETNX', key.meta_paused, 1) == 1 then
    redis.call('HSET', key.meta, 'paused', 1)
    redis.call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end
