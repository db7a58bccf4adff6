-- While this time passes, a job that moves from one ending process to the next has stalled once.
local ONE_STOP_MS = 30000

-- Whether a job has stalled once more, as its process ends. When several processes are stopped, one after the other,
-- the next one may have claimed the job again: this is no further stall if it was running already, `since` then, ms
-- since 1970. The ZSET `interrupted` has the jobs and when they stalled in this way.
local function counts_as_stall(key, id, since, now)
  local call = redis.call
  local last = tonumber(call('ZSCORE', key.interrupted, id) or nil)
  if last and since <= last and now < last + ONE_STOP_MS then
    return false
  end
  call('ZREMRANGEBYSCORE', key.interrupted, '-inf', string.format('%.0f', now - ONE_STOP_MS))
  call('ZADD', key.interrupted, string.format('%.0f', now), id)
  call('PEXPIRE', key.interrupted, ONE_STOP_MS)
  return true
end
