-- When a scheduler's next job is due, ms: one interval after the previous one; if that has passed, at the next multiple
-- of the interval, shifted by `offset`.
local function next_of_every(previous, every, offset, now)
  local next_ms = previous + every
  if next_ms < now then
    next_ms = math.floor(now / every) * every + offset
    if next_ms <= now then
      next_ms = next_ms + every
    end
  end
  return math.floor(next_ms)
end
