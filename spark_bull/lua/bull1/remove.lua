-- Removes one job and all it has.
-- @keys receipt job lock wait paused active delayed completed failed
-- @args base call ttl_ms job_id
-- @returns {'done'} (also for an id whose job is gone), {'missing'} or {'locked'}
-- @include once
-- @include remove_bull1

local call = redis.call

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.lock) == 1 then
    return {'locked'}
  end
  local gone = call('SREM', key.completed, arg.job_id) + call('SREM', key.failed, arg.job_id)
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
