-- How many of the next waiting jobs are searched for one.
local NEXT_JOBS = 1000

-- Whether a job is prioritized, or one of the next ones of the queue.
local function waits(key, id)
  return redis.call('ZSCORE', key.prioritized, id)
    or redis.call('LPOS', key.wait, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
    or redis.call('LPOS', key.paused, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
end
