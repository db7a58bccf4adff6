-- @include bull/lib: leave_limiter

-- Deletes what Bull stores about waiting and delayed jobs outside of these states, when they have left them.
local function leave_wait(key, ids)
  if #ids > 0 then
    redis.call('ZREM', key.priority, unpack(ids))
    leave_limiter(key, ids)
  end
end
