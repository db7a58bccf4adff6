-- Stores a job's progress. Returns nil; -1 when the job does not exist; -2 when the lock does not hold `lock_token`,
-- unless that is empty.
local function save_progress(key, arg)
  if redis.call('EXISTS', key.job) == 0 then
    return -1
  end
  if arg.lock_token ~= '' and redis.call('GET', key.lock) ~= arg.lock_token then
    return -2
  end
  redis.call('HSET', key.job, 'progress', arg.progress)
end
