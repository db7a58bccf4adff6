-- Moves all waiting jobs into one list, then resumes the queue and sets the marker that workers block on, once per call
-- of a sender.
-- @args call ttl_ms limit
-- @returns number of jobs still to be moved: call again until 0
-- @include lib/join_lists
-- @include lib/once

local function wake_workers()
  local call = redis.call
  if call('EXISTS', key.wait, key.prioritized) > 0 then
    call('ZADD', key.marker, 0, '0')
    return
  end
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
  end
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local left = join_lists(key, key.wait, tonumber(arg.limit))
  if left == 0 then
    wake_workers()
    redis.call('HDEL', key.meta, 'paused')
    redis.call('XADD', key.events, '*', 'event', 'resumed')
  end
  return left
end)
