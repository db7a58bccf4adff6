-- Lets a delayed job wait for a worker now.
-- @keys receipt job delayed wait paused meta_paused
-- @args call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed)
-- @include once

local call = redis.call

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local was_delayed = call('ZREM', key.delayed, arg.job_id) == 1
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  if not was_delayed then
    return {'elsewhere'}
  end
  call('LPUSH', call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait, arg.job_id)
  return {'done'}
end)
