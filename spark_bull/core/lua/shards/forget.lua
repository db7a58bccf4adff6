-- Removes the layout of a logical queue that was obliterated, unless it has a registered write that is unfinished, or its
-- number of shards is being changed. A write that was planned or prepared before can't be registered then.
-- @returns 1 if there is none any more, else 0

if call('ZCOUNT', key.open_writes, 0, '+inf') > 0 or call('HEXISTS', key.shard_layout, 'next') == 1 then
  return 0
end
call('DEL', key.shard_layout)
return 1
