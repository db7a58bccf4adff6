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

-- The rate limit that holds: how many jobs may start in how many ms, nil for none. `meta`: max and duration of the queue
-- itself. As in BullMQ, the queue's max goes before that of the worker's limiter, but the worker's duration before that of
-- the queue.
local function rate_limit(arg, meta)
  local most = tonumber(meta[3]) or tonumber(arg.limiter_max)
  local duration = tonumber(arg.limiter_ms) or tonumber(meta[4])
  if most and duration then
    return most, math.floor(math.abs(duration))
  end
end

-- How many of `limit` jobs may start, by pause, global concurrency and rate limit, and for how long none may, ms.
-- `meta`: paused, concurrency, max and duration of the queue itself, false for none. While one of the limits holds, no more
-- are claimed than start at once: others would hold places that nobody uses.
local function claim_quota(key, arg, meta, limit)
  local call = redis.call
  local left = call('PTTL', key.rate_limited)
  if left > 0 then
    return 0, left
  end
  local most, most_active = rate_limit(arg, meta), tonumber(meta[2])
  if most then
    local started = started_jobs(key.limiter)
    if started >= most then
      left = call('PTTL', key.limiter)
      if left > 0 then
        return 0, left
      end
      call('DEL', key.limiter)
      started = 0
    end
    limit = math.min(limit, most - started)
  end
  if meta[1] then
    return 0, 0
  end
  if most_active then
    limit = math.min(limit, most_active - call('LLEN', key.active))
  end
  if most or most_active then
    limit = math.min(limit, tonumber(arg.at_once) or limit)
  end
  return math.max(limit, 0), 0
end

-- Counts started jobs for the rate limit, if there is one.
local function count_started(key, arg, meta, started)
  local most, duration = rate_limit(arg, meta)
  if most and started > 0 and redis.call('INCRBY', key.limiter, started) == started then
    redis.call('PEXPIRE', key.limiter, duration)
  end
end
