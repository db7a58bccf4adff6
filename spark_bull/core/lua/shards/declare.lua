-- Stores how many shards a logical queue has, unless it has some. The key is in the queue that is shard 0. The first
-- epoch is the time, so that it differs from the epochs of a layout that was removed.
-- @returns names and values of the layout
-- @include lib: values(time_ms)

if call('EXISTS', key.shard_layout) == 0 then
  call('HSET', key.shard_layout, 'count', arg.count, 'most', arg.count, 'epoch', time_ms(), 'writes', 0,
    'dialect', arg.dialect, 'servers', arg.servers)
end
return call('HGETALL', key.shard_layout)
