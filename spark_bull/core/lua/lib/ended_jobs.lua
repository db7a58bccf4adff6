local COUNT_OF = {list = 'LLEN', zset = 'ZCARD', set = 'SCARD'}
local UNFINISHED = {'wait', 'paused', 'active', 'delayed', 'prioritized', 'waiting_children'}

local function size_of(state_key)
  local count = COUNT_OF[redis.call('TYPE', state_key).ok]
  return count and redis.call(count, state_key) or 0
end

-- The number of jobs that have ended in one of `states`, whether or not they still exist: the id counter, less the jobs
-- that are in another state. A duplicate, and a job that was removed before it ended, count as ended; a retried job
-- does not.
local function ended_jobs(key, states)
  local count, wanted = tonumber(redis.call('GET', key.id) or 0), {}
  for _, state in ipairs(states) do
    wanted[state] = true
  end
  for _, state in ipairs(UNFINISHED) do
    count = count - size_of(key[state])
  end
  for _, state in ipairs({'completed', 'failed'}) do
    if not wanted[state] then
      count = count - size_of(key[state])
    end
  end
  return count
end
