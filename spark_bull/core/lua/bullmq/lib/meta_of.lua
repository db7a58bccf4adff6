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
