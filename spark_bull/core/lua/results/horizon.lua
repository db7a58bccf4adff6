-- The horizon of a query: bounds up to which `discover` finds all jobs that have finished by now.
-- @keys active delayed paused prioritized wait waiting_children
-- @args states...
-- @returns {highest score of completed, of failed, last event id, now in ms, number of ended jobs}; 0 and 0-0 for a key
-- that is missing, and for a SET
-- @include lib: events(last_event) guard(ended_jobs) values(time_ms)

local function highest(state)
  if call('TYPE', state).ok ~= 'zset' then
    return '0'
  end
  return call('ZRANGE', state, -1, -1, 'WITHSCORES')[2]
end

return {highest(key.completed), highest(key.failed), last_event(key.events), time_ms() .. '',
  ended_jobs(key, arg.states) .. ''}
