-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(keys, job_id)
  local function has(state)
    return redis.call('ZSCORE', state, job_id)
  end
  return has(keys.completed) and 'completed' or has(keys.waiting_children) and 'waiting_children'
    or has(keys.delayed) and 'delayed' or has(keys.failed) and 'failed' or has(keys.prioritized) and 'prioritized'
    or 'unknown'
end
