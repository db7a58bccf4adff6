-- @include lib: event_parts

-- Whether an event comes after another one.
local function is_behind(event_id, other_id)
  local ms, number = event_parts(event_id)
  local other_ms, other_number = event_parts(other_id)
  return ms > other_ms or (ms == other_ms and number > other_number)
end
