-- The score of a delayed job. Jobs of one millisecond stay in order: each gets the score after the highest existing
-- one, up to 4096 per millisecond. `highest`: the highest scores of this chunk, by time.
local function delayed_score(key, highest, eta)
  local low, high = eta * 4096, eta * 4096 + 4095
  local last = highest[eta]
  if not last then
    local found = redis.call('ZREVRANGEBYSCORE', key.delayed, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
    last = tonumber(found[2])
  end
  local score = last and math.min(last + 1, high) or low
  highest[eta] = score
  return score
end
