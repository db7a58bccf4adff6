-- Stores one packed chunk under its number; no worker sees it. The stage key of a registered write has no TTL: a late
-- call leaves it unchanged. A prepared write keeps its longer TTL.
-- @returns 1 when the chunk is staged, 0 when the stage key belongs to a registered write

local ttl = call('PTTL', key.stage)
if ttl == -1 then
  return 0
end
call('HSET', key.stage, arg.number, arg.chunk)
if ttl < tonumber(arg.ttl_ms) then
  call('PEXPIRE', key.stage, arg.ttl_ms)
end
return 1
