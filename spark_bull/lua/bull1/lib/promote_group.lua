-- @include bull/lib/waiting_list
-- @include lib/insert_near

-- Makes delayed jobs of groups wait behind the next jobs, in this order, and publishes them.
local function promote_group(key, ids)
  redis.call('ZREM', key.delayed, unpack(ids))
  insert_near(waiting_list(key), ids)
  for _, id in ipairs(ids) do
    redis.call('PUBLISH', key.jobs, id)
  end
end
