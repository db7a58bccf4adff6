-- Moves a delayed job to the waiting ones, at the place of its priority.
-- @keys receipt job delayed wait paused meta_paused priority
-- @args base token call ttl_ms job_id
-- @returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed)
-- @include bull/lib/insert_by_priority
-- @include bull/lib/waiting_list
-- @include lib/priority_of
-- @include lib/promote_once

local call = redis.call

return promote_once(key, arg, function()
  local target = waiting_list(key)
  local priority = priority_of(key.job)
  if priority > 0 then
    insert_by_priority(key, target, arg.job_id, priority)
  else
    call('LPUSH', target, arg.job_id)
  end
  call('PUBLISH', arg.base .. 'waiting@' .. arg.token, arg.job_id)
  redis.pcall('HSET', key.job, 'delay', 0)
end)
