-- Reads events in a range of ids, and tells whether events after its start were removed. `taken`: how many events were
-- added up to the start (Redis 7): if more were removed, some came after it. Without `taken`, some may have been removed
-- if the oldest event comes after the next one: `expected` if it is known, else the successor of `after`. A stream that
-- did not exist ('0-0') has lost nothing, nor has one that was deleted and begins again.
-- @returns {1 if events after `after` were removed, 2 if they may have been, else 0; entries}
-- @include lib: events(event_parts is_behind stream_info)

local function successor(id)
  local ms, sequence = event_parts(id)
  if id:match('-18446744073709551615$') then
    return string.format('%.0f-0', ms + 1)
  end
  return string.format('%.0f-%.0f', ms, sequence + 1)
end

local info = stream_info(key.events)
if not info then
  return {0, {}}
end
local added, oldest, taken, lost = info['entries-added'], info['first-entry'], tonumber(arg.taken), 0
if added and taken then
  lost = added >= taken and added - info.length > taken and 1 or 0
elseif oldest and arg.after ~= '0-0' then
  lost = is_behind(oldest[1], arg.expected ~= '' and arg.expected or successor(arg.after)) and 2 or 0
end
return {lost, call('XRANGE', key.events, '(' .. arg.after, arg.stop, 'COUNT', arg.limit)}
