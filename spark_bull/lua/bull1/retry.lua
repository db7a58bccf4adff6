-- Moves a failed job back to the waiting ones; its fields stay, as in Bull 1.
-- @args base token call ttl_ms job_id resets
-- @returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not failed)
-- @include bull/lib/retry_job
-- @include bull1/lib/retried
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {retry_job(key, arg, arg.job_id, 'SREM', retried, arg.resets == '1')}
end)
