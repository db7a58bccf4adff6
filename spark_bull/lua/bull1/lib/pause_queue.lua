-- @include lib/join_lists

-- Pauses a queue: its jobs move to `paused`, where no worker looks. Returns how many are to follow.
local function pause_queue(key, limit)
  if redis.call('SETNX', key.meta_paused, 1) == 1 then
    redis.call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end
