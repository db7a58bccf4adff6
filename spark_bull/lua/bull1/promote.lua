-- Moves a delayed job to the waiting ones.
-- @keys receipt job delayed wait paused meta_paused
-- @args call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include bull/lib/waiting_list
-- @include lib/promote_once

return promote_once(key, arg, function()
  redis.call('LPUSH', waiting_list(key), arg.job_id)
end)
