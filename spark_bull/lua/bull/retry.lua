-- Puts a failed job back among those that wait. It has lost its priority, as in Bull.
-- @keys receipt job lock state wait paused meta_paused
-- @args base token call ttl_ms job_id
-- @returns {'done'}, {'missing'}, {'locked'} or {'elsewhere'} (not in `state`)
-- @include once
-- @include push_of
-- @include time_ms

local call = redis.call

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local opts = call('HGET', key.job, 'opts')
  if not opts then
    return {'missing'}
  end
  if call('EXISTS', key.lock) == 1 then
    return {'locked'}
  end
  if call('ZREM', key.state, arg.job_id) == 0 then
    return {'elsewhere'}
  end
  call('HDEL', key.job, 'finishedOn', 'processedOn', 'failedReason')
  call('HSET', key.job, 'retriedOn', time_ms())
  local target = call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
  call(push_of(opts), target, arg.job_id)
  call('PUBLISH', arg.base .. 'waiting@' .. arg.token, arg.job_id)
  return {'done'}
end)
