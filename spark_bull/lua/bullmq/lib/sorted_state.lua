local SORTED = {'completed', 'waiting_children', 'delayed', 'failed', 'prioritized'}

-- The state of a job, by the name of its key; 'unknown' if it may be in one that is a list.
local function sorted_state(keys, job_id)
  for _, name in ipairs(SORTED) do
    if redis.call('ZSCORE', keys[name], job_id) then
      return name
    end
  end
  return 'unknown'
end
