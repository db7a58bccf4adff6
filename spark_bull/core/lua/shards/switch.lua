-- Uses the next number of shards, as the caller has found the present ones drained; unless a write was registered since
-- it read the number of `writes`. A write with the present `epoch` can't be registered then, also if it is prepared: its
-- score among the open writes is negative, and the process that is to confirm it may have died.
-- @returns 1 when the next number is used, else 0

local next_count, writes, epoch = unpack(call('HMGET', key.shard_layout, 'next', 'writes', 'epoch'))
if not next_count or writes ~= arg.writes or epoch ~= arg.epoch or call('ZCOUNT', key.open_writes, 0, '+inf') > 0 then
  return 0
end
call('HSET', key.shard_layout, 'count', next_count, 'epoch', epoch + 1)
call('HDEL', key.shard_layout, 'next')
return 1
