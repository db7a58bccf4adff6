-- Renews the lease of a caller, and keeps its results for `keep_ms` from now. Without `lease_ms` the caller has ended:
-- it gives up the lease.
-- @keys open_callers
-- @args parents...
-- @returns the time, ms since 1970
-- @include lib: time_ms

local call, now = redis.call, time_ms()

if arg.lease_ms == '' then
  call('ZREM', key.open_callers, arg.caller)
else
  call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
end
for _, parent_key in ipairs(arg.parents) do
  for _, name in ipairs({'', ':dependencies', ':processed', ':failed'}) do
    call('PEXPIREAT', parent_key .. name, now + arg.keep_ms)
  end
end
return now
