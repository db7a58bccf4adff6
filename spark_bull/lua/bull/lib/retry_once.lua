-- @include bull/lib/waiting_list
-- @include lib/once
-- @include lib/push_of

-- Moves a failed job of Bull back to the waiting ones and calls `announce()`, unless this call was answered before.
-- `take`: the command that removes a member of `state`, ZREM or SREM.
-- Returns {'done'}, {'missing'}, {'locked'} or {'wrong_state'} (not in `state`).
local function retry_once(key, arg, take, announce)
  local call = redis.call
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if call('EXISTS', key.job) == 0 then
      return {'missing'}
    end
    local opts = call('HGET', key.job, 'opts')
    if call('EXISTS', key.lock) == 1 then
      return {'locked'}
    end
    if call(take, key.state, arg.job_id) == 0 then
      return {'wrong_state'}
    end
    call(push_of(opts), waiting_list(key), arg.job_id)
    announce()
    return {'done'}
  end)
end
