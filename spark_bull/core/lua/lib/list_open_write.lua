-- @include lib: time_ms

-- More writes than this are never prepared in a queue at the same time, unless their programs died.
local MOST_PREPARED = 1000

-- Marks other writes of the same version, of the same application, that are only prepared in the queue: of these rows,
-- one write adds those of the queue. Later versions do not matter, as a confirmed write may be opened after them.
local function supersede(open, write, write_id)
  local call, own, writes = redis.call, redis.call('HMGET', write, 'appId', 'version'), write:sub(1, -#write_id - 1)
  -- The scores of writes that are only prepared are negative.
  for _, other in ipairs(own[1] and call('ZRANGEBYSCORE', open, '-inf', '(0', 'LIMIT', 0, MOST_PREPARED) or {}) do
    local found = call('HMGET', writes .. other, 'state', 'appId', 'version')
    if found[1] == 'prepared' and found[2] == own[1] and found[3] == own[2] then
      call('HSET', writes .. other, 'superseded', 1)
    end
  end
end

-- Adds a registered write to the open writes of its queue. They are committed in the order of their registration, also
-- when the clock is put back.
local function list_open_write(open, write, write_id)
  supersede(open, write, write_id)
  local now, last = time_ms(), redis.call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', open, last and math.max(now, tonumber(last) + 1) or now, write_id)
  redis.call('PERSIST', open)
end
