local pop = {
  list = function(state, count)
    return redis.call('RPOP', state, count)
  end,
  set = function(state, count)
    return redis.call('SPOP', state, count)
  end,
  zset = function(state, count)
    local pairs_of, ids = redis.call('ZPOPMIN', state, count), {}
    for i = 1, #pairs_of, 2 do
      ids[#ids + 1] = pairs_of[i]
    end
    return ids
  end,
  hash = function(state, count)
    local ids = redis.call('HRANDFIELD', state, count)
    if #ids > 0 then
      redis.call('HDEL', state, unpack(ids))
    end
    return ids
  end,
}

-- Removes the next `limit` jobs (or members) of `stores`, each {key, type, remove(ids)}. Returns whether there may be
-- more.
local function remove_members(stores, limit)
  for _, store in ipairs(stores) do
    local ids = pop[store[2]](store[1], limit) or {}
    if #ids > 0 then
      store[3](ids)
    end
    limit = limit - #ids
    if limit <= 0 then
      return true
    end
  end
  return false
end
