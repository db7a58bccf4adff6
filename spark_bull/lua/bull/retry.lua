-- Moves a failed job back to the waiting ones. It loses its priority, as in Bull.
-- @args base token call ttl_ms job_id resets
-- @returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not failed)
-- @include bull/lib/retried
-- @include bull/lib/retry_job
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {retry_job(key, arg, arg.job_id, 'ZREM', retried, arg.resets == '1')}
end)
