-- Scans the next keys of the database for those that show that a queue exists: `signs` maps the last segment of such a
-- key to its possible types.
-- @returns {next cursor, keys...}

local signs = cmsgpack.unpack(arg.signs)
local scanned = call('SCAN', arg.cursor, 'MATCH', arg.pattern, 'COUNT', arg.count)
local answer = {scanned[1]}
for _, found in ipairs(scanned[2]) do
  local types = signs[string.match(found, '.*:(.*)')]
  if types and string.find(types, call('TYPE', found).ok, 1, true) then
    answer[#answer + 1] = found
  end
end
return answer
