-- Reads the entries start..stop of a ledger of results, the last one excluded; lib/result_entry has their format.
-- @keys ledger track
-- @args start stop
-- @returns {position of the first entry read, entries}; no entries and another position than `start` when those from
-- `start` on have been removed

local start = tonumber(arg.start)
local base = tonumber(redis.call('HGET', key.track, 'base') or start)
if start < base then
  return {base, {}}
end
return {start, redis.call('LRANGE', key.ledger, start - base, tonumber(arg.stop) - base - 1)}
