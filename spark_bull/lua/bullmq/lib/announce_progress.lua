-- @include bullmq/lib: event_limit

local function announce_progress(key, arg)
  redis.call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'progress',
    'jobId', arg.job_id, 'data', arg.progress)
end
