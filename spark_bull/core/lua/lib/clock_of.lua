-- @include lib: listed

-- Returns a function of the row that returns the job's creation time (ms since 1970) and delay (ms).
local function clock_of(chunk, now)
  if not (chunk.timestamp or chunk.run_at or chunk.delay) then
    return function()
      return now, 0
    end
  end
  local timestamps, delays = listed(chunk, 'timestamp'), listed(chunk, 'delay')
  local run_ats = listed(chunk, 'run_at')
  return function(i)
    local timestamp = timestamps[i] or now
    if run_ats[i] then
      return timestamp, math.max(0, run_ats[i] - timestamp)
    end
    return timestamp, delays[i] or 0
  end
end
