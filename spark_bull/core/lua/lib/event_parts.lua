-- The time and the sequence number in the id of an event.
local function event_parts(event_id)
  local ms, number = string.match(event_id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end
