-- Sets the marker that workers block on.
local function wake_workers(key)
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

local function resume_queue(key)
  wake_workers(key)
  redis.call('HDEL', key.meta, 'paused')
  redis.call('XADD', key.events, '*', 'event', 'resumed')
end
