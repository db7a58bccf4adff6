-- Moves all waiting jobs into one list, then resumes the queue and sets the marker that workers block on.
-- @keys wait paused prioritized delayed meta events marker
-- @args limit
-- @returns number of jobs still to be moved: call again until 0
-- @include lib/join_lists

local call = redis.call
local left = join_lists(key, key.wait, tonumber(arg.limit))
if left > 0 then
  return left
end
if call('EXISTS', key.wait, key.prioritized) > 0 then
  call('ZADD', key.marker, 0, '0')
else
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
  end
end
if call('HDEL', key.meta, 'paused') == 1 then
  call('XADD', key.events, '*', 'event', 'resumed')
end
return 0
