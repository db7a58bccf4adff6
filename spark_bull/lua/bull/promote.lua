-- Moves a delayed job to the waiting ones, at the place of its priority.
-- @keys receipt delayed wait paused meta_paused priority
-- @args base token call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include bull/lib/enqueue_promoted
-- @include lib/once
-- @include lib/promote_job

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {promote_job(key, arg, arg.job_id, enqueue_promoted)}
end)
