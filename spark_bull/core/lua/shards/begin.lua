-- Begins to change the number of shards of a logical queue, unless it is being changed to another one. With the present
-- number as `next`, a change that has begun is given up.
-- @returns names and values of the layout; none if the queue has no shards

local count, next_count = unpack(call('HMGET', key.shard_layout, 'count', 'next'))
if count == arg.next then
  call('HDEL', key.shard_layout, 'next')
elseif count and not next_count then
  call('HSET', key.shard_layout, 'next', arg.next, 'most', math.max(call('HGET', key.shard_layout, 'most'), arg.next))
end
return call('HGETALL', key.shard_layout)
