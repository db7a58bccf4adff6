-- @include lib/once

-- Removes a job from `delayed` and calls `enqueue()`, which makes it wait, unless this call was answered before.
-- Returns {'done'}, {'missing'} (its id has left `delayed`) or {'wrong_state'} (not delayed).
local function promote_once(key, arg, enqueue)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local was_delayed = redis.call('ZREM', key.delayed, arg.job_id) == 1
    if redis.call('EXISTS', key.job) == 0 then
      return {'missing'}
    end
    if not was_delayed then
      return {'wrong_state'}
    end
    enqueue()
    return {'done'}
  end)
end
