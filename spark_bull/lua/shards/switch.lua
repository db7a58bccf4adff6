-- Uses the next number of shards, as the caller has found the present ones drained; unless a write was registered since
-- it read the number of `writes`, or is being registered. A write with the present `epoch` can't be registered then.
-- @returns 1 when the next number is used, else 0

local call = redis.call

local next_count, writes, epoch = unpack(call('HMGET', key.shard_layout, 'next', 'writes', 'epoch'))
if not next_count or writes ~= arg.writes or epoch ~= arg.epoch or call('ZCARD', key.open_writes) > 0 then
  return 0
end
call('HSET', key.shard_layout, 'count', next_count, 'epoch', epoch + 1)
call('HDEL', key.shard_layout, 'next')
return 1
