-- @include bullmq/lib: delayed_score event_limit

-- Adds a job to the delayed ones, due at `eta` ms, and sets the marker to the time of the first one.
local function delay_job(key, job_id, eta)
  local call = redis.call
  call('ZADD', key.delayed, delayed_score(key, {}, eta), job_id)
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'delayed',
    'jobId', job_id, 'delay', string.format('%.0f', eta))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end
