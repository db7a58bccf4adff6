-- @include lib: id_there is_job

-- Returns a function of a change that says why the job can't be changed; see manage_jobs. `refusal(change)`
-- returns 'locked', 'scheduled' or nil, `is_in_wrong_state(change)` whether the state of the job excludes the action.
local function mismatch_by(base, refusal, is_in_wrong_state)
  return function(change)
    if not is_job(base, change.id) then
      -- An id without a job can be removed.
      return (change.action ~= 'remove' or redis.call('EXISTS', change.key) == 1) and 'missing' or nil
    end
    local id = change.action == 'move' and id_there(change)
    local is_there = id and redis.call('EXISTS', change.to_base .. id) == 1
    return refusal(change) or is_in_wrong_state(change) and 'wrong_state' or is_there and 'exists' or nil
  end
end
