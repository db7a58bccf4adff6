-- @include lib/once
-- @include lib/time_ms

-- Calls `upsert(key, arg, chunk, from, now)` for a packed chunk, unless this call was answered before. Returns the
-- first row not processed, the times of the next jobs, and {row, reason} of the schedules that were rejected; or
-- {'closed'}: the queue accepts no jobs, and nothing was changed.
local function schedule_once(key, arg, upsert)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    if redis.call('EXISTS', key.intake_closed) == 1 then
      return {'closed'}, true
    end
    local made = upsert(key, arg, cmsgpack.unpack(arg.chunk), tonumber(arg.from), time_ms())
    return {made.next, made.due, made.rejected}
  end)
end
