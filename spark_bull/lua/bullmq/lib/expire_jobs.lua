-- @include lib: has_expired next_expiry_of

-- Gives jobs that have expired a deferred failure, with which the next worker fails them without running them, `limit`
-- at most. Delayed ones are due at once.
-- Returns when the next one expires, ms since 1970, or nil, and how many have expired.
local function expire_jobs(key, arg, now, limit)
  local call, expired = redis.call, 0
  local due = call('ZRANGEBYSCORE', key.expiry, '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    local job_key = arg.base .. id
    if has_expired(job_key, now) then
      call('HSET', job_key, 'defa', 'expired')
      call('HDEL', job_key, 'expireAt')
      call('ZADD', key.delayed, 'XX', now * 4096, id)
      expired = expired + 1
    end
  end
  if #due > 0 then
    call('ZREM', key.expiry, unpack(due))
  end
  return next_expiry_of(key.expiry), expired
end
