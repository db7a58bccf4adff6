-- @include lib: is_written
-- @include bullmq/lib: event_limit

-- As `emit`, in a script that does not trim the stream otherwise.
local function emit_trimmed(key, args, event, ...)
  if is_written(args, event) then
    redis.call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', event, ...)
  end
end
