-- Removes the layout of a logical queue that was obliterated, unless it has an unfinished write, or its number of shards
-- is being changed. A write that was planned before can't be registered then.
-- @returns 1 if there is none any more, else 0

local call = redis.call

if call('ZCARD', key.open_writes) > 0 or call('HEXISTS', key.shard_layout, 'next') == 1 then
  return 0
end
call('DEL', key.shard_layout)
return 1
