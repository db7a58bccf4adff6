-- The time of Redis, ms since 1970.
local function time_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
