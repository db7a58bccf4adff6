-- @include lib: holds_deduplication mismatch_by
-- @include bullmq/lib: is_scheduled_job

-- Actions that no job with a lock, or made by a job scheduler, allows.
local TAKES_JOB = {remove = true, fail = true, complete = true, move = true}

local function has_relatives(change)
  local job_key = change.key
  return redis.call('HEXISTS', job_key, 'parentKey') == 1 or redis.call('EXISTS', job_key .. ':dependencies',
    job_key .. ':processed', job_key .. ':failed', job_key .. ':unsuccessful') > 0
end

-- The states of which a job must have one; others are found by the action itself.
local function is_in_wrong_state(key, change)
  local action, call, id = change.action, redis.call, change.id
  if action == 'retry' then
    local from = change.from or 'failed'
    return not call('ZSCORE', from == 'completed' and key.completed or key.failed, id)
      or (from ~= 'failed' and from ~= 'completed')
  elseif action == 'promote' then
    return not call('ZSCORE', key.delayed, id)
  elseif action == 'delay' then
    return call('ZSCORE', key.completed, id) or call('ZSCORE', key.failed, id) or call('ZSCORE', key.waiting_children, id)
  elseif action == 'fail' or action == 'complete' then
    return call('ZSCORE', key.completed, id) or call('ZSCORE', key.failed, id)
      or call('ZSCORE', key.waiting_children, id)
      or (action == 'complete' and call('EXISTS', change.key .. ':dependencies', change.key .. ':unsuccessful') > 0)
  elseif action == 'move' then
    return call('ZSCORE', key.waiting_children, id) or has_relatives(change)
  elseif action == 'free' then
    return not holds_deduplication(change)
  end
end

-- Why a job can't be changed, or nil; see managed_jobs.manage.
local function mismatch_of(key, arg)
  local function refusal(change)
    if TAKES_JOB[change.action] then
      local is_locked = redis.call('EXISTS', change.key .. ':lock') == 1
      return is_locked and 'locked' or is_scheduled_job(key, arg, change.id) and 'scheduled' or nil
    end
  end
  return mismatch_by(arg.base, refusal, function(change)
    return is_in_wrong_state(key, change)
  end)
end
