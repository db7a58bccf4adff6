-- The number of jobs started in the current period of the rate limit. A key that holds no number is deleted.
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

-- The rate limit: how many jobs may start in how many ms, nil for none. As in BullMQ, the queue's `max` has precedence
-- over the worker's, but the worker's duration over the queue's. With `delays`, the jobs over the worker's limit are
-- delayed when they are to start: see bull/lib/claim_jobs.lua.
local function rate_limit(arg, limits)
  if limits.delays then
    return nil
  end
  local most = limits.max or tonumber(arg.limiter_max)
  local duration = tonumber(arg.limiter_ms) or limits.duration
  if most and duration then
    return most, math.floor(math.abs(duration))
  end
end

-- Returns the claimable count and the rate-limit wait (ms). `limits`: {paused, concurrency, max, duration, delays} of
-- the queue itself, nil for none. Under a limit, no more jobs are claimed than start at once: others would use up the
-- limit without running.
local function claim_quota(key, arg, limits, limit)
  local call = redis.call
  local left = call('PTTL', key.rate_limited)
  if left > 0 then
    return 0, left
  end
  local most, most_active = rate_limit(arg, limits), limits.concurrency
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
  if limits.paused then
    return 0, 0
  end
  if most_active then
    limit = math.min(limit, most_active - call('LLEN', key.active))
  end
  if most or most_active or limits.delays or arg.group ~= '' then
    limit = math.min(limit, tonumber(arg.at_once) or limit)
  end
  return math.max(limit, 0), 0
end

-- Counts started jobs for the rate limit, if there is one.
local function count_started(key, arg, limits, started)
  local most, duration = rate_limit(arg, limits)
  if most and started > 0 and redis.call('INCRBY', key.limiter, started) == started then
    redis.call('PEXPIRE', key.limiter, duration)
  end
end

local start_limit = {started = started_jobs, quota = claim_quota, count = count_started}
