-- A chunk holds a column per property of its jobs: one value for all of them, or a list.
local function value_of(column, i)
  if type(column) == 'table' then
    return column[i]
  end
  return column
end

-- When job i was made and how long it waits: ms since 1970, ms.
local function times_of(chunk, i, now)
  local timestamp = value_of(chunk.timestamp, i) or now
  local run_at = value_of(chunk.runAt, i)
  if run_at then
    return timestamp, math.max(0, run_at - timestamp)
  end
  return timestamp, value_of(chunk.delay, i) or 0
end
