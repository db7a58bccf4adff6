-- Lets a delayed job wait for a worker now.
-- @keys receipt job delayed wait paused meta_paused
-- @args call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed)
-- @include lib/promote_once

local call = redis.call

return promote_once(key, arg, function()
  call('LPUSH', call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait, arg.job_id)
end)
