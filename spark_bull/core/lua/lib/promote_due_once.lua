-- @include lib: next_expiry_of once time_ms

-- Promotes delayed jobs that are due, once per call of a sender. Promotes none while jobs have expired and the script
-- `expire` has not run yet (`after_expiry`), as it would move some of them. `promote(now)` returns when the next one is due, ms, or false, and how many it has promoted.
-- Returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms}.
local function promote_due_once(key, arg, promote)
  local now = time_ms()
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local next_due, moved, next_expiry = false, 0, next_expiry_of(key.expiry)
    if arg.after_expiry == '1' or not next_expiry or next_expiry > now then
      next_due, moved = promote(now)
    end
    if next_expiry then
      next_due = math.min(next_due or math.huge, next_expiry)
    end
    return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
  end)
end
