-- @include lib/holds_deduplication
-- @include lib/mismatch_by

-- Actions that no job with a lock allows.
local NEEDS_UNLOCKED = {retry = true, remove = true, fail = true, complete = true, move = true}

-- `is_in(state, id)`: whether a job has completed or failed.
local function is_in_wrong_state(key, is_in, change)
  local action, id = change.action, change.id
  if action == 'retry' then
    return (change.from or 'failed') ~= 'failed' or not is_in(key.failed, id)
  elseif action == 'promote' or action == 'delay' then
    return not redis.call('ZSCORE', key.delayed, id)
  elseif action == 'fail' or action == 'complete' then
    return is_in(key.completed, id) or is_in(key.failed, id)
  elseif action == 'free' then
    return not holds_deduplication(change)
  end
end

local function refusal_by_lock(change)
  return NEEDS_UNLOCKED[change.action] and redis.call('EXISTS', change.key .. ':lock') == 1 and 'locked' or nil
end

-- Why a job can't be changed, or nil; see managed_jobs.manage. `is_in`: see is_in_wrong_state.
local function mismatch_of(key, is_in)
  return mismatch_by(refusal_by_lock, function(change)
    return is_in_wrong_state(key, is_in, change)
  end)
end
