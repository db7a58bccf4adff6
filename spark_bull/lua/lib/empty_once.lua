-- @include lib/is_replacing
-- @include lib/once

-- Calls `obliterate_queue(key, arg)` for a write that replaces the queue, unless this call was answered before.
-- Returns 'open' while there is more to remove, then 'done'.
local function empty_once(key, arg, obliterate_queue)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if not is_replacing(key.write) then
      return 'done'
    end
    local state = obliterate_queue(key, arg)
    if state == 'done' then
      redis.call('HSET', key.write, 'emptied', 1)
    end
    return state
  end)
end
