-- The id of the newest event that a stream ever had, though it may be empty by now; '0-0' if there was none.
local function last_event(stream)
  if redis.call('EXISTS', stream) == 0 then
    return '0-0'
  end
  local about = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then
      return about[i + 1]
    end
  end
end
