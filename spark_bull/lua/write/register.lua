-- Makes a staged write sure to happen: from here on anyone can commit it. All queues of the write
-- are registered, or none. `plan` is a list with one entry a queue:
-- {write, manifest, open, watermark or '', stages = {{key, chunks}...}, id, fields = {name, value...}}.
-- @keys touched...
-- @args plan version watermark_ttl_ms
-- @returns {'registered'}, {'replayed'} (this version was written before), or {'lost', stage key}
-- @include lib/time_ms

local call = redis.call
local plan = cmsgpack.unpack(arg.plan)
assert(#key.touched > 0)

local function all_entries(found)
  for _, entry in ipairs(plan) do
    local answer = found(entry)
    if answer then
      return answer
    end
  end
end

if call('EXISTS', plan[1].write) == 1 then
  return {'registered'}
end

local replayed = all_entries(function(entry)
  local done = entry.watermark ~= '' and call('GET', entry.watermark)
  return done and tonumber(done) >= tonumber(arg.version)
end)
if replayed then
  all_entries(function(entry)
    for _, stage in ipairs(entry.stages) do
      call('UNLINK', stage[1])
    end
  end)
  return {'replayed'}
end

local lost = all_entries(function(entry)
  for _, stage in ipairs(entry.stages) do
    if call('HLEN', stage[1]) ~= stage[2] then
      return stage[1]
    end
  end
end)
if lost then
  return {'lost', lost}
end

local now = time_ms()

-- Writes are done in this order, whatever the clock does.
local function behind_all(open)
  local last = call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  return last and math.max(now, tonumber(last) + 1) or now
end

all_entries(function(entry)
  -- First what a Redis without free memory refuses: then nothing has happened yet.
  call('HSET', entry.write, 'state', 'open', 'position', 0, 'chunk', 0, 'from', 1, 'added', 0,
    'duplicates', 0, 'startedOn', now, unpack(entry.fields))
  for _, stage in ipairs(entry.stages) do
    call('PERSIST', stage[1])
    call('RPUSH', entry.manifest, stage[1])
  end
  call('ZADD', entry.open, behind_all(entry.open), entry.id)
  if entry.watermark ~= '' then
    call('SET', entry.watermark, arg.version, 'PX', arg.watermark_ttl_ms)
  end
end)
return {'registered'}
