-- The id of the last event added to a stream, even if it was trimmed since; '0-0' for none.
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
