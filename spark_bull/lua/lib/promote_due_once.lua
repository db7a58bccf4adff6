-- @include lib: once time_ms

-- Promotes delayed jobs that are due, unless this call was answered before. `promote(now)` returns when the next one is
-- due, ms, or false, how many it has promoted, when the next job expires, ms, or nil, and how many have expired.
-- Returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms, number of expired jobs}.
local function promote_due_once(key, arg, promote)
  local now = time_ms()
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local next_due, moved, next_expiry, expired = promote(now)
    if next_expiry then
      next_due = math.min(next_due or math.huge, next_expiry)
    end
    local answer = {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now), expired}
    return answer, moved + expired == 0
  end)
end
