-- Registers a prepared write, by its queue that leads: this is the commit point for all of its queues. The others, and
-- the staged chunks, are left to `open`, which any process can run.
-- @keys shard_layout? watermark?
-- @returns {'registered'}, {'replayed'} (this version has been written before), {'lost', key} (it was prepared too long ago, or discarded), or {'resharded'} (the number of shards has changed)
-- @include lib: values(time_ms) writes(list_open_write)

local write = call('HMGET', key.write, 'state', 'deadline', 'shardsEpoch')
if write[1] and write[1] ~= 'prepared' then
  return {'registered'}
end
if not write[1] or time_ms() > tonumber(write[2]) then
  return {'lost', key.write}
end
local done = key.watermark and call('GET', key.watermark)
if done and tonumber(done) >= tonumber(arg.version) then
  return {'replayed'}
end
if key.shard_layout then
  if call('HGET', key.shard_layout, 'epoch') ~= write[3] then
    return {'resharded'}
  end
  call('HINCRBY', key.shard_layout, 'writes', 1)
end
call('HSET', key.write, 'state', 'open', 'unkept', 0)
call('PERSIST', key.write)
call('PERSIST', key.manifest)
list_open_write(key.open, key.write, arg.write_id)
if key.watermark then
  call('SET', key.watermark, arg.version, 'PX', arg.watermark_ttl_ms)
end
return {'registered'}
