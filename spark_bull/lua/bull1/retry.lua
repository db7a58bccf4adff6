-- Moves a failed job back to the waiting ones; its fields stay, as in Bull 1.
-- @keys receipt job lock state wait paused meta_paused jobs
-- @args call ttl_ms job_id
-- @returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not in `state`)
-- @include bull/lib/retry_once

return retry_once(key, arg, 'SREM', function()
  redis.call('PUBLISH', key.jobs, arg.job_id)
end)
