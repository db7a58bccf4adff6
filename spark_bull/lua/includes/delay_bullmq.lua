-- @include delayed_score_bullmq
-- @include max_events_bullmq

-- Puts a job among the delayed ones, due at `eta` ms, and lets those who sleep know when the first one is.
local function delay_bullmq(key, job_id, eta)
  local call = redis.call
  call('ZADD', key.delayed, delayed_score_bullmq(key, {}, eta), job_id)
  call('XADD', key.events, 'MAXLEN', '~', max_events_bullmq(key), '*', 'event', 'delayed',
    'jobId', job_id, 'delay', string.format('%.0f', eta))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end
