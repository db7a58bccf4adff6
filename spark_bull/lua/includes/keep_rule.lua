-- Removes the oldest jobs of a ZSET of finished ones until it holds what `keep` allows: {count, age (s), limit}, some
-- thousands at a time. `remove(id)` deletes what a job has.
local function keep_rule(state, keep, now, remove)
  local call = redis.call
  local function drop(ids)
    for _, id in ipairs(ids) do
      remove(id)
    end
    if #ids > 0 then
      call('ZREM', state, unpack(ids))
    end
  end
  if keep.age then
    drop(call('ZREVRANGEBYSCORE', state, now - keep.age * 1000, '-inf', 'LIMIT', 0, keep.limit or 1000))
  end
  local over = keep.count and keep.count > 0 and call('ZCARD', state) - keep.count or 0
  if over > 0 then
    drop(call('ZRANGE', state, 0, math.min(over, 1000) - 1))
  end
end
