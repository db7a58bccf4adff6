-- Removes the entries before a position from a ledger of results.
-- @returns position of the first entry left, or false without a ledger

local base = tonumber(call('HGET', key.track, 'base') or '')
if not base then
  return false
end
local cut = math.min(tonumber(arg.position) - base, call('LLEN', key.ledger))
if cut > 0 then
  call('LTRIM', key.ledger, cut, -1)
  base = call('HINCRBY', key.track, 'base', cut)
end
return base
