-- @include lib/once

-- Takes a job out of `delayed` and calls `put()`, which makes it wait, unless this very call was answered before.
-- Returns {'done'}, {'missing'} (its id then is not delayed any more) or {'elsewhere'} (not delayed).
local function promote_once(key, arg, put)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local was_delayed = redis.call('ZREM', key.delayed, arg.job_id) == 1
    if redis.call('EXISTS', key.job) == 0 then
      return {'missing'}
    end
    if not was_delayed then
      return {'elsewhere'}
    end
    put()
    return {'done'}
  end)
end
