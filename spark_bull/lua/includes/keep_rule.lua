local function drop_finished(state, ids, remove)
  for _, id in ipairs(ids) do
    remove(id)
  end
  if #ids > 0 then
    redis.call('ZREM', state, unpack(ids))
  end
end

-- Removes the oldest jobs of a ZSET of finished ones until there is room for `coming` others.
local function make_room(state, keep, coming, remove)
  local call = redis.call
  local over = keep.count and keep.count > 0 and call('ZCARD', state) + coming - keep.count or 0
  if over > 0 then
    drop_finished(state, call('ZRANGE', state, 0, math.min(over, 1000) - 1), remove)
  end
end

-- Removes jobs of a ZSET of finished ones that are older than `keep` allows.
local function drop_old(state, keep, now, remove)
  if keep.age then
    local old = redis.call('ZREVRANGEBYSCORE', state, now - keep.age * 1000, '-inf', 'LIMIT', 0, keep.limit or 1000)
    drop_finished(state, old, remove)
  end
end

-- Removes the oldest jobs of a ZSET of finished ones until it holds what `keep` allows: {count, age (s), limit}, some
-- thousands at a time. `remove(id)` deletes what a job has.
local function keep_rule(state, keep, now, remove)
  drop_old(state, keep, now, remove)
  make_room(state, keep, 0, remove)
end

-- Adds jobs, in the order in which they ended, to a ZSET of finished ones, and removes what `keep` (see keep_rule) doesn't
-- allow. They have one score: those that there is no room for go before their order is lost.
local function add_finished(state, ids, keep, now, remove)
  local surplus = keep.count and keep.count > 0 and math.max(0, #ids - keep.count) or 0
  for i = 1, surplus do
    remove(ids[i])
  end
  make_room(state, keep, #ids - surplus, remove)
  local scored, finished_on = {}, string.format('%.0f', now)
  for i = surplus + 1, #ids do
    scored[#scored + 1], scored[#scored + 2] = finished_on, ids[i]
  end
  redis.call('ZADD', state, unpack(scored))
  drop_old(state, keep, now, remove)
end
