-- @include bull/lib/waiting_list

-- Makes delayed jobs the next ones, in this order, and publishes them.
local function promote_first(key, ids)
  local target = waiting_list(key)
  redis.call('ZREM', key.delayed, unpack(ids))
  for i = #ids, 1, -1 do
    redis.call('RPUSH', target, ids[i])
    redis.call('PUBLISH', key.jobs, ids[i])
  end
end
