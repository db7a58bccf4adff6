-- Moves a failed job back to the waiting ones. It loses its priority, as in Bull.
-- @keys receipt job lock state wait paused meta_paused
-- @args base token call ttl_ms job_id
-- @returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not in `state`)
-- @include bull/lib/retry_once
-- @include lib/time_ms

local call = redis.call

return retry_once(key, arg, 'ZREM', function()
  call('HDEL', key.job, 'finishedOn', 'processedOn', 'failedReason')
  call('HSET', key.job, 'retriedOn', time_ms())
  call('PUBLISH', arg.base .. 'waiting@' .. arg.token, arg.job_id)
end)
