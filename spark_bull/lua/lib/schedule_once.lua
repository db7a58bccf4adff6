-- @include lib/once
-- @include lib/time_ms

-- Calls `upsert(key, arg, chunk, from, now)` for a packed chunk, unless this call was answered before. Returns the
-- first row not processed, the times of the next jobs, and {row, reason} of the schedules that were rejected.
local function schedule_once(key, arg, upsert)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local made = upsert(key, arg, cmsgpack.unpack(arg.chunk), tonumber(arg.from), time_ms())
    return {made.next, made.due, made.rejected}
  end)
end
