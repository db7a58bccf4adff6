-- Moves a failed or completed job back to the waiting ones, and back into the dependencies of its parent.
-- @args base bullmq_version call ttl_ms job_id from resets
-- @returns {'done'}, {'missing'} or {'wrong_state'} (not in the state `from`)
-- @include bullmq/lib/retry_job
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {retry_job(key, arg, arg.job_id, arg.from, arg.resets == '1')}
end)
