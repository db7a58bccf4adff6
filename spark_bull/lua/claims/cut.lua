-- Removes the entries before a position from a ledger of claims.
-- @keys ledger base
-- @args position ttl_ms
-- @returns number of entries left

local call = redis.call
local cut = tonumber(call('GET', key.base) or 0)
local position = tonumber(arg.position)
if position > cut and call('EXISTS', key.ledger) == 1 then
  call('LTRIM', key.ledger, position - cut, -1)
  call('SET', key.base, arg.position, 'PX', arg.ttl_ms)
end
return call('LLEN', key.ledger)
