-- Moves a delayed job to the waiting or prioritized ones.
-- @keys receipt delayed wait paused active prioritized pc meta events marker
-- @args base bullmq_version call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include bullmq/lib/enqueue_promoted
-- @include lib/once
-- @include lib/promote_job

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {promote_job(key, arg, arg.job_id, enqueue_promoted)}
end)
