-- @include lib/once

-- Calls `obliterate_queue(key, arg)`, unless this call was answered before, or jobs are active and `force` is not '1'.
-- Returns {'active', number of active jobs} or {what obliterate_queue returned}.
local function obliterate_once(key, arg, obliterate_queue)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local active = redis.call('LLEN', key.active)
    if active > 0 and arg.force ~= '1' then
      return {'active', active}
    end
    return {obliterate_queue(key, arg)}
  end)
end
