-- Prepares a portion of a large write: some of its queues, or of the stage keys of one. All that is prepared expires, and
-- no worker sees it, until `confirm` registers the write. `plan`: see `register`; its entries also have `first`, the
-- number of stage keys of the queue in earlier portions, and the field `leader` of `fields` is the key of the write in
-- the queue that is confirmed. The score of a prepared write among the open writes is negative: the time until which it
-- can be confirmed. Its jobs are part of the length of the queue. `fields` may change from one portion to the next.
-- @keys touched...
-- @returns {'prepared'}, or what `register` returns
-- @include lib: values(time_ms) writes(registration_refusal)

local plan = cmsgpack.unpack(arg.plan)
assert(#key.touched > 0)

for _, entry in ipairs(plan) do
  local state = call('HGET', entry.write, 'state')
  if state and state ~= 'prepared' then
    return {'registered'}
  end
  if entry.first > 0 and not state then
    return {'lost', entry.write}
  end
end
local refusal = registration_refusal(plan, arg.version)
if refusal then
  return refusal
end
local now = time_ms()
for _, entry in ipairs(plan) do
  if call('EXISTS', entry.write) == 0 then
    local deadline = now + arg.valid_ms
    call('HSET', entry.write, 'state', 'prepared', 'deadline', deadline, 'position', 0, 'chunk', 0, 'from', 1,
      'added', 0, 'duplicates', 0, 'startedOn', now)
    call('PEXPIRE', entry.write, arg.ttl_ms)
    call('ZADD', entry.open, -deadline, entry.id)
    if tonumber(call('ZRANGE', entry.open, -1, -1, 'WITHSCORES')[2]) < 0 then
      call('PEXPIRE', entry.open, arg.ttl_ms)
    end
  end
  call('HSET', entry.write, unpack(entry.fields))
  if call('LLEN', entry.manifest) == entry.first then
    for _, stage in ipairs(entry.stages) do
      call('RPUSH', entry.manifest, stage.key)
      call('PEXPIRE', stage.key, arg.ttl_ms)
    end
    call('PEXPIRE', entry.manifest, arg.ttl_ms)
  end
end
return {'prepared'}
