-- Moves a delayed job to the waiting ones, at the place of its priority.
-- @args base token bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include lib/once
-- @include lib/promote_job
-- @include {dialect}/lib/enqueue_promoted

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {promote_job(key, arg, arg.job_id, enqueue_promoted)}
end)
