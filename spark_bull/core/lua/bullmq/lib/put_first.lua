-- @include bullmq/lib: priority_score

-- Adds jobs of one priority before all others of that priority, in this order: below the lowest existing score, or with
-- the next places of the counter. (Node gives all of them one score, and Redis sorts equal scores by the text of the
-- ids.)
local function put_first(key, priority, ids)
  local call, base, scored = redis.call, priority_score(priority, 0), {}
  local first = call('ZRANGEBYSCORE', key.prioritized, base - 2147483648, base + 2147483647, 'WITHSCORES', 'LIMIT', 0, 1)
  local stop = first[2] and tonumber(first[2]) or base + call('INCRBY', key.pc, #ids) + 1
  for i, id in ipairs(ids) do
    scored[2 * i - 1], scored[2 * i] = string.format('%.0f', stop - #ids + i - 1), id
  end
  call('ZADD', key.prioritized, unpack(scored))
end
