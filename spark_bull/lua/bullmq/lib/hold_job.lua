-- @include bullmq/lib/delayed_score
-- @include bullmq/lib/event_limit

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
