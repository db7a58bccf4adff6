-- Registers a staged write with few keys, for all of its queues or none: from then on any process can commit it.
-- A larger one is registered by `prepare`, `confirm` and `open`. `plan` has an entry for each queue, as for
-- registration_refusal, and with manifest, id, queue (its number), and fields = {name, value, …}.
-- @keys touched...
-- @returns {'registered'}, {'replayed'} (this version has been written before), {'lost', stage key}, {'closed', number of the queue}, {'full', number of the queue, its length}, or {'resharded'} (the number of shards has changed)
-- @include lib: values(time_ms) writes(list_open_write registration_refusal)

local plan = cmsgpack.unpack(arg.plan)
assert(#key.touched > 0)

if call('EXISTS', plan[1].write) == 1 then
  return {'registered'}
end
local refusal = registration_refusal(plan, arg.version)
if refusal then
  if refusal[1] == 'replayed' then
    for _, entry in ipairs(plan) do
      for _, stage in ipairs(entry.stages) do
        call('UNLINK', stage.key)
      end
    end
  end
  return refusal
end
local now = time_ms()
for _, entry in ipairs(plan) do
  -- A Redis that is out of memory refuses this command, before anything else has changed.
  call('HSET', entry.write, 'state', 'open', 'position', 0, 'chunk', 0, 'from', 1, 'added', 0,
    'duplicates', 0, 'startedOn', now, unpack(entry.fields))
  for _, stage in ipairs(entry.stages) do
    call('PERSIST', stage.key)
    call('RPUSH', entry.manifest, stage.key)
  end
  list_open_write(entry.open, entry.write, entry.id)
  if entry.shard_layout ~= '' then
    call('HINCRBY', entry.shard_layout, 'writes', 1)
  end
  if entry.watermark ~= '' then
    call('SET', entry.watermark, arg.version, 'PX', arg.watermark_ttl_ms)
  end
end
return {'registered'}
