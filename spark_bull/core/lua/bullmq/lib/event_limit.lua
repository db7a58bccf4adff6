-- @include lib: whole_number

-- The limits that this script has read, by the key of `meta`.
local EVENT_LIMITS = {}

-- The approximate maximum length of the event stream; the default is stored in `meta`, as in BullMQ, and stands in
-- for a text that is no number.
local function event_limit(key)
  local name = key.meta
  if not EVENT_LIMITS[name] then
    local given = redis.call('HGET', name, 'opts.maxLenEvents')
    EVENT_LIMITS[name] = given and (given == '0' or whole_number(given) > 0) and string.format('%.0f', whole_number(given))
      or '10000'
    if not given then
      redis.call('HSET', name, 'opts.maxLenEvents', '10000')
    end
  end
  return EVENT_LIMITS[name]
end
