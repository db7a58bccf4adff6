-- Registers a staged write, for all of its queues or none: from then on any process can commit it. `plan` has an entry
-- for each queue: {write, manifest, open, watermark or '', stages = {{key, chunks}, …}, id, fields = {name, value, …},
-- intake_closed (key, '': the jobs were added before), limit (nil: none) = {max_length, jobs, replaces, lists, zsets,
-- writes}; see queue_length}.
-- @keys touched...
-- @args plan version watermark_ttl_ms
-- @returns {'registered'}, {'replayed'} (this version has been written before), {'lost', stage key}, {'closed', number of the entry}, or {'full', number of the entry, length of the queue}
-- @include lib/queue_length
-- @include lib/time_ms

local call = redis.call
local plan = cmsgpack.unpack(arg.plan)
assert(#key.touched > 0)

-- Calls `visit` for the entries, until it returns something for one.
local function each_entry(visit)
  for number, entry in ipairs(plan) do
    local found = visit(entry, number)
    if found then
      return found
    end
  end
end

if call('EXISTS', plan[1].write) == 1 then
  return {'registered'}
end

local replayed = each_entry(function(entry)
  local done = entry.watermark ~= '' and call('GET', entry.watermark)
  return done and tonumber(done) >= tonumber(arg.version)
end)
if replayed then
  each_entry(function(entry)
    for _, stage in ipairs(entry.stages) do
      call('UNLINK', stage.key)
    end
  end)
  return {'replayed'}
end

local lost = each_entry(function(entry)
  for _, stage in ipairs(entry.stages) do
    if call('HLEN', stage.key) ~= stage.chunks then
      return stage.key
    end
  end
end)
if lost then
  return {'lost', lost}
end

local closed = each_entry(function(entry, number)
  return entry.intake_closed ~= '' and call('EXISTS', entry.intake_closed) == 1 and number
end)
if closed then
  return {'closed', closed}
end

local full = each_entry(function(entry, number)
  local limit = entry.limit
  -- A write that replaces the queue finds it empty.
  local length = limit and (limit.replaces and 0 or queue_length(limit.lists, limit.zsets, entry.open, limit.writes))
  return limit and length + limit.jobs > limit.max_length and {'full', number, length}
end)
if full then
  return full
end

local now = time_ms()

-- Writes are committed in the order of their registration, also when the clock is put back.
local function score_after_all(open)
  local last = call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  return last and math.max(now, tonumber(last) + 1) or now
end

each_entry(function(entry)
  -- A Redis that is out of memory refuses this command, before anything else has changed.
  call('HSET', entry.write, 'state', 'open', 'position', 0, 'chunk', 0, 'from', 1, 'added', 0,
    'duplicates', 0, 'startedOn', now, unpack(entry.fields))
  for _, stage in ipairs(entry.stages) do
    call('PERSIST', stage.key)
    call('RPUSH', entry.manifest, stage.key)
  end
  call('ZADD', entry.open, score_after_all(entry.open), entry.id)
  if entry.watermark ~= '' then
    call('SET', entry.watermark, arg.version, 'PX', arg.watermark_ttl_ms)
  end
end)
return {'registered'}
