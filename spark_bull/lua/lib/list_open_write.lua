-- @include lib: time_ms

-- Adds a registered write to the open writes of its queue. They are committed in the order of their registration, also
-- when the clock is put back.
local function list_open_write(open, write_id)
  local now, last = time_ms(), redis.call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', open, last and math.max(now, tonumber(last) + 1) or now, write_id)
  redis.call('PERSIST', open)
end
