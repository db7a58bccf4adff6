local LISTS = {'wait', 'paused', 'active'}

-- Removes a job from its state, see sorted_state. Lists are searched from the end from which jobs are claimed. Returns
-- the name of the state.
local function leave_any_state(key, job_id, state)
  if state ~= 'unknown' then
    redis.call('ZREM', key[state], job_id)
    return string.gsub(state, '_', '-') .. ''
  end
  for _, name in ipairs(LISTS) do
    if redis.call('LREM', key[name], -1, job_id) == 1 then
      return name
    end
  end
  return 'unknown'
end
