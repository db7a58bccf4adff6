-- Renews the lease of a caller, and keeps its results for `keep_ms` from now. Without `lease_ms` the caller has ended:
-- it gives up the lease. One whose jobs are kept until they are gathered, and still run, leaves them to the next sweep.
-- @args parents...
-- @returns the time, ms since 1970
-- @include lib: call_keys time_ms

local call, now = redis.call, time_ms()

local function has_kept_jobs()
  for _, parent_key in ipairs(arg.parents) do
    if call('SCARD', parent_key .. ':kept') > 1 then
      return true
    end
  end
  return false
end

if arg.lease_ms ~= '' then
  call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
elseif has_kept_jobs() then
  call('ZADD', key.open_callers, now, arg.caller)
  return now
else
  call('ZREM', key.open_callers, arg.caller)
end
for _, parent_key in ipairs(arg.parents) do
  for _, name in ipairs(CALL_KEYS) do
    call('PEXPIREAT', parent_key .. name, now + arg.keep_ms)
  end
end
return now
