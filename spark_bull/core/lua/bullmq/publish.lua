-- Adds an event of a program to the stream of events, which is trimmed to about `max_events`, by default the queue's own
-- limit.
-- @args fields...
-- @returns id of the entry
-- @include lib: once
-- @include bullmq/lib: events(event_limit)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local max_events = arg.max_events == '' and event_limit(key) or arg.max_events
  return call('XADD', key.events, 'MAXLEN', '~', max_events, '*', unpack(arg.fields))
end)
