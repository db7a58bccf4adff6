-- @include lib: holds_deduplication mismatch_by
-- @include {dialect}/lib: finished_state

-- Actions that no job with a lock allows.
local NEEDS_UNLOCKED = {retry = true, remove = true, fail = true, complete = true, move = true}

local function is_in_wrong_state(key, change)
  local action, id, has = change.action, change.id, finished_state.has
  if action == 'retry' then
    return (change.from or 'failed') ~= 'failed' or not has(key.failed, id)
  elseif action == 'promote' then
    return not redis.call('ZSCORE', key.delayed, id)
  elseif action == 'delay' or action == 'fail' or action == 'complete' then
    return has(key.completed, id) or has(key.failed, id)
  elseif action == 'free' then
    return not holds_deduplication(change)
  end
end

local function refusal_by_lock(change)
  return NEEDS_UNLOCKED[change.action] and redis.call('EXISTS', change.key .. ':lock') == 1 and 'locked' or nil
end

-- Why a job can't be changed, or nil; see manage_jobs.
local function mismatch_of(key, arg)
  return mismatch_by(arg.base, refusal_by_lock, function(change)
    return is_in_wrong_state(key, change)
  end)
end
