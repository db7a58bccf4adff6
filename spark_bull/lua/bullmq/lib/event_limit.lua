-- The approximate maximum length of the event stream; the default is stored in `meta`, as in BullMQ.
local function event_limit(key)
  local max_events = redis.call('HGET', key.meta, 'opts.maxLenEvents')
  if not max_events then
    max_events = '10000'
    redis.call('HSET', key.meta, 'opts.maxLenEvents', max_events)
  end
  return max_events
end
