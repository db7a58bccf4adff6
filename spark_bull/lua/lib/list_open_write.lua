-- @include lib: time_ms

-- Marks other writes of the same version, of the same application, that are only prepared in the queue: of these rows,
-- one write adds those of the queue. Later versions do not matter, as a confirmed write may be opened after them.
local function supersede(open, write, write_id)
  local call, own, writes = redis.call, redis.call('HMGET', write, 'appId', 'version'), write:sub(1, -#write_id - 1)
  local place, other = 0, own[1] and call('ZRANGE', open, 0, 0, 'WITHSCORES') or {}
  -- The scores of writes that are only prepared are negative.
  while other[1] and tonumber(other[2]) < 0 do
    local found = call('HMGET', writes .. other[1], 'state', 'appId', 'version')
    if found[1] == 'prepared' and found[2] == own[1] and found[3] == own[2] then
      call('HSET', writes .. other[1], 'superseded', 1)
    end
    place = place + 1
    other = call('ZRANGE', open, place, place, 'WITHSCORES')
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
