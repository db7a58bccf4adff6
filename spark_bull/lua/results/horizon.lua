-- Up to where to look to find what has finished by now.
-- @keys id wait paused active delayed prioritized waiting_children completed failed events
-- @args states...
-- @returns {highest score of completed, of failed, last event, now, ms, how many jobs have ended}; what is empty, or no ZSET,
-- has 0 and 0-0
-- @include lib/ended_jobs
-- @include lib/last_event
-- @include lib/time_ms

local call = redis.call

local function highest(state)
  if call('TYPE', state).ok ~= 'zset' then
    return '0'
  end
  return call('ZRANGE', state, -1, -1, 'WITHSCORES')[2]
end

return {highest(key.completed), highest(key.failed), last_event(key.events), time_ms() .. '',
  ended_jobs(key, arg.states) .. ''}
