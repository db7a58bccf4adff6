-- Moves a failed job, in BullMQ also a completed one, back to the waiting ones. In Bull it loses its priority.
-- @returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not in the state `from`)
-- @include lib: once
-- @include {dialect}/lib: manage(retry_job)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {retry_job(key, arg, {id = arg.job_id, from = arg.from, reset_attempts = arg.resets == '1'})}
end)
