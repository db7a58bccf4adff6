-- What `meta` says about a queue.

-- What this script has read of `meta`, by its key.
local META = {}

-- Fields of `meta` of a queue: {paused, concurrency, version}, false for none. Read once per script: a script that
-- changes them does so before.
local function meta_of(key)
  local name = key.meta
  if not META[name] then
    META[name] = redis.call('HMGET', name, 'paused', 'concurrency', 'version')
  end
  return META[name]
end

-- The major version of BullMQ of a queue: the given one, or the one in its `meta`; 5 if unknown: BullMQ up to 5.19
-- writes none, and BullMQ 6 also finds the jobs that BullMQ 5 has left in `paused`.
local function major_version(version, forced_version)
  if forced_version ~= 'auto' then
    return tonumber(forced_version)
  end
  return tonumber(string.match(version or '', '^bullmq:(%d+)%.') or '5')
end
