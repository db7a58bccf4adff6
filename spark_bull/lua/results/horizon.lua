-- Up to where to look to find what has finished by now.
-- @keys completed failed events
-- @args
-- @returns {highest score of completed, of failed, last event, now, ms}; what is empty, or no ZSET, has 0 and 0-0
-- @include time_ms

local call = redis.call

local function highest(state)
  if call('TYPE', state).ok ~= 'zset' then
    return '0'
  end
  return call('ZRANGE', state, -1, -1, 'WITHSCORES')[2]
end

local newest = call('XREVRANGE', key.events, '+', '-', 'COUNT', 1)[1]
return {highest(key.completed), highest(key.failed), newest and newest[1] or '0-0', time_ms() .. ''}
