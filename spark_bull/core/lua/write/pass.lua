-- Notes that a micro-batch without rows was committed, unless a later one was. Its version is the batch id.
-- @returns the last version that was committed

local done = tonumber(call('GET', key.watermark) or -1)
if done >= tonumber(arg.version) then
  return done
end
call('SET', key.watermark, arg.version, 'PX', arg.watermark_ttl_ms)
return tonumber(arg.version)
