-- Moves a delayed job to the waiting ones, at the place of its priority.
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include lib: once promote(promote_job)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {promote_job(key, arg, arg.job_id)}
end)
