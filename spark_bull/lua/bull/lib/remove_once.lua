-- @include lib/once

-- Removes one job from its state and calls `remove_jobs(key, arg, ids)`, unless this call was answered before.
-- `take`: the command that removes a member of `completed` and `failed`, ZREM or SREM.
-- Returns {'done'} (also when only the id existed), {'missing'} or {'locked'}.
local function remove_once(key, arg, take, remove_jobs)
  local call = redis.call
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if call('EXISTS', key.lock) == 1 then
      return {'locked'}
    end
    local gone = call(take, key.completed, arg.job_id) + call(take, key.failed, arg.job_id)
      + call('ZREM', key.delayed, arg.job_id)
    if gone == 0 then
      for _, list in ipairs({key.active, key.wait, key.paused}) do
        gone = gone + call('LREM', list, 0, arg.job_id)
      end
    end
    if gone == 0 and call('EXISTS', key.job) == 0 then
      return {'missing'}
    end
    remove_jobs(key, arg, {arg.job_id})
    return {'done'}
  end)
end
