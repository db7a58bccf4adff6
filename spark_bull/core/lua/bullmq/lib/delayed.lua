-- The ZSET of the delayed jobs.
-- @include bullmq/lib: events(event_limit)

-- The score of a delayed job. Jobs of one millisecond stay in order: each gets the score after the highest existing
-- one, up to 4096 per millisecond. `highest`: the highest scores of this chunk, by time.
local function delayed_score(key, highest, eta)
  local low, high = eta * 4096, eta * 4096 + 4095
  local last = highest[eta]
  if not last then
    local found = redis.call('ZREVRANGEBYSCORE', key.delayed, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
    last = tonumber(found[2])
  end
  local score = last and math.min(last + 1, high) or low
  highest[eta] = score
  return score
end

-- Adds a job to the delayed ones, due at `eta` ms, and sets the marker to the time of the first one.
local function delay_job(key, job_id, eta)
  local call = redis.call
  call('ZADD', key.delayed, delayed_score(key, {}, eta), job_id)
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'delayed',
    'jobId', job_id, 'delay', string.format('%.0f', eta))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end

-- Adds one of many jobs to the delayed ones, due at `eta` ms; `highest`: see delayed_score. Returns its score.
local function hold_job(key, highest, job_id, eta)
  local score = string.format('%.0f', delayed_score(key, highest, eta))
  redis.call('ZADD', key.delayed, score, job_id)
  redis.call('XADD', key.events, '*', 'event', 'delayed', 'jobId', job_id, 'delay', string.format('%.0f', eta))
  return score
end

-- Sets the marker to the time of the first delayed job, after such jobs were added, and trims their events.
local function mark_held(key)
  local call = redis.call
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end
