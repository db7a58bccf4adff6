-- The extent of a stream of events.
-- @returns {the greatest id before the oldest entry, the last id, number of entries, how many were ever added, or -1 if
--   Redis does not count them}; '0-0' without a stream
-- @include lib: events(stream_info)

local info = stream_info(key.events)
if not info then
  return {'0-0', '0-0', 0, 0}
end
local last, oldest, added = info['last-generated-id'], info['first-entry'], info['entries-added'] or -1
if not oldest then
  return {last, last, 0, added}
end
local ms, sequence = oldest[1]:match('(%d+)-(%d+)')
local before = ms .. '-' .. string.format('%.0f', tonumber(sequence) - 1)
if sequence == '0' then
  before = string.format('%.0f', tonumber(ms) - 1) .. '-18446744073709551615'
end
return {before, last, info.length, added}
