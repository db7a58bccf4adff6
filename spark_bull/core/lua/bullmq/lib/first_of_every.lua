-- When the first job of a scheduler with an interval is due, ms: at its start, else at the next multiple of the
-- interval, shifted by `offset`, else at once.
local function first_of_every(every, offset, start, now)
  if start then
    return math.floor(math.max(start, now))
  end
  if offset == 0 then
    return now
  end
  local next_ms = math.floor(now / every) * every + offset
  if next_ms <= now then
    next_ms = next_ms + every
  end
  return math.floor(next_ms)
end
