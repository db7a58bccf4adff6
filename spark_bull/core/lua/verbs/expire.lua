-- Fails jobs that have expired, about a hundred per call. While some of them are left, the first time in `expiry` is
-- over.
-- @returns number of jobs that have failed
-- @include lib: once values(time_ms)
-- @include {dialect}/lib: rescue(expire_jobs)

local now = time_ms()

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local failed = expire_jobs(key, arg, now)
  return failed, failed == 0
end)
