-- @include lib/once
-- @include lib/time_ms

-- Promotes delayed jobs that are due, unless this call was answered before. `promote(now)` returns when the next one is
-- due, ms, or false, and how many it has promoted.
-- Returns {number of promoted jobs, when the next one is due, ms, or '', now in ms}.
local function promote_due_once(key, arg, promote)
  local now = time_ms()
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local next_due, moved = promote(now)
    return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
  end)
end
