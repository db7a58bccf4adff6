-- The limits that this script has read, by the key of `meta`.
local EVENT_LIMITS = {}

-- The approximate maximum length of the event stream; the default is stored in `meta`, as in BullMQ.
local function event_limit(key)
  local name = key.meta
  if not EVENT_LIMITS[name] then
    EVENT_LIMITS[name] = redis.call('HGET', name, 'opts.maxLenEvents')
    if not EVENT_LIMITS[name] then
      EVENT_LIMITS[name] = '10000'
      redis.call('HSET', name, 'opts.maxLenEvents', '10000')
    end
  end
  return EVENT_LIMITS[name]
end
