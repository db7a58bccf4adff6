-- Renews the lease of a caller, and keeps its results for `keep_ms` from now. `ended` ('1'): all its calls have ended, and
-- it gives up the lease. It keeps the lease if jobs are pending, or kept until they are gathered. Another caller of its
-- name may need these jobs; or they still run, and a sweep removes them.
-- @args parents...
-- @returns the time, ms since 1970
-- @include lib: jobs(CALL_KEYS) values(time_ms)

local now = time_ms()

local function has_jobs()
  for _, parent_key in ipairs(arg.parents) do
    if call('SCARD', parent_key .. ':dependencies') > 1 or call('SCARD', parent_key .. ':kept') > 1 then
      return true
    end
  end
  return false
end

if arg.ended ~= '1' then
  call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
elseif has_jobs() then
  call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
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
