local SORTED = {'completed', 'waiting_children', 'delayed', 'failed', 'prioritized'}
local LISTS = {'wait', 'paused', 'active'}

-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(keys, job_id)
  for _, name in ipairs(SORTED) do
    if redis.call('ZSCORE', keys[name], job_id) then
      return name
    end
  end
  return 'unknown'
end

-- Removes a job from its state, see sorted_state. Lists are searched from the end from which jobs are claimed. Returns
-- the name of the state.
local function leave_any_state(keys, job_id, state)
  if state ~= 'unknown' then
    redis.call('ZREM', keys[state], job_id)
    return string.gsub(state, '_', '-') .. ''
  end
  for _, name in ipairs(LISTS) do
    if redis.call('LREM', keys[name], -1, job_id) == 1 then
      return name
    end
  end
  return 'unknown'
end
