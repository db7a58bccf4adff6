-- Stores one packed chunk under its number; no worker sees it. The stage key of a registered write has no TTL: a late
-- call leaves it unchanged.
-- @returns 1 when the chunk is staged, 0 when the stage key belongs to a registered write

if redis.call('PTTL', key.stage) == -1 then
  return 0
end
redis.call('HSET', key.stage, arg.number, arg.chunk)
redis.call('PEXPIRE', key.stage, arg.ttl_ms)
return 1
