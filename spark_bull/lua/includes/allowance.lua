-- How many jobs have started in the current period of the rate limit. A key that holds no number limits nothing, and goes.
local function started_jobs(limiter)
  local started = redis.pcall('GET', limiter)
  if type(started) == 'string' and string.match(started, '^%d+$') then
    return tonumber(started)
  end
  if started then
    redis.call('DEL', limiter)
  end
  return 0
end

-- How many of `limit` jobs may start, by pause, global concurrency and rate limit, and for how long none may, ms.
-- `meta`: paused, concurrency, max and duration of the queue itself, false for none; they go before the worker's limiter.
local function allowance(key, arg, meta, limit)
  local call = redis.call
  local most = tonumber(meta[3] or arg.limiter_max)
  local started = started_jobs(key.limiter)
  if started >= (most or 9007199254740991) then
    local left = call('PTTL', key.limiter)
    if left > 0 then
      return 0, left
    end
    call('DEL', key.limiter)
    started = 0
  end
  if meta[1] then
    return 0, 0
  end
  if most then
    limit = math.min(limit, most - started)
  end
  local most_active = tonumber(meta[2])
  if most_active then
    limit = math.min(limit, most_active - call('LLEN', key.active))
  end
  return math.max(limit, 0), 0
end

-- Counts started jobs for the rate limit, if there is one.
local function count_started(key, arg, meta, started)
  local most = tonumber(meta[3] or arg.limiter_max)
  if most and started > 0 and redis.call('INCRBY', key.limiter, started) == started then
    redis.call('PEXPIRE', key.limiter, math.floor(math.abs(tonumber(meta[4]) or tonumber(arg.limiter_ms) or 0)))
  end
end
