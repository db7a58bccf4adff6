-- @include lib: insert_near
-- @include bull/bull1/lib: announce_waiting
-- @include bull/lib: waiting_list

-- Makes delayed jobs of groups wait behind the next jobs, in this order, and publishes them.
local function promote_group(key, arg, ids)
  redis.call('ZREM', key.delayed, unpack(ids))
  insert_near(waiting_list(key), ids)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end
