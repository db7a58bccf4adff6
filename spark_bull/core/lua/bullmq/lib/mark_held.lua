-- @include bullmq/lib: event_limit

-- Sets the marker to the time of the first delayed job, after such jobs were added, and trims their events.
local function mark_held(key)
  local call = redis.call
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end
