-- @include lib: start_limit

-- Applies the worker's limiter to a job that is to start, as a worker of Bull 3 and 4 with the same counters does: counts
-- it, or delays it if the limit of the period is used up, or other jobs are delayed for it. With `groupKey` each group has
-- a counter, and is the part of the id behind the last colon. Returns whether the job was delayed.
local function delay_over_limit(key, arg, id, now)
  local call, group = redis.call, arg.limiter_groups == '1' and string.match(id, '[^:]+$')
  if group == 'index' then
    -- Its counter would be the key of the index; Bull fails with such a job.
    group = nil
  end
  local counter = group and key.limiter .. ':' .. group or key.limiter
  local most, duration, limited = tonumber(arg.limiter_max), tonumber(arg.limiter_ms), counter .. ':limited'
  local delay = 0
  if call('SREM', limited, id) == 1 then
    call('HDEL', key.limiter_index, id)
  else
    local before = call('SCARD', limited)
    if before > 0 then
      -- 10 % more than the jobs before it need, as Bull adds.
      delay = before * duration * 1.1 / most + call('PTTL', counter)
    end
  end
  local started = start_limit.started(counter)
  if delay == 0 and started >= most then
    delay = call('PTTL', counter) + (started - most) * duration / most
  end
  if delay > 0 then
    call('ZADD', key.delayed, (now + delay) * 4096 + bit.band(started, 0xfff), id)
    call('PUBLISH', key.delayed, now + delay)
    call('SADD', limited, id)
    call('HSET', key.limiter_index, id, limited)
    return true
  end
  if call('INCR', counter) == 1 then
    call('PEXPIRE', counter, duration)
  end
  return false
end
