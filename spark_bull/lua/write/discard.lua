-- Forgets staged chunks of a write that failed, unless it was registered: then they are its own, for
-- whoever finishes it or, when it is broken, looks into it.
-- @keys write stages...
-- @args
-- @returns how many stage keys were deleted

if redis.call('EXISTS', key.write) == 1 then
  return 0
end
local deleted = 0
for _, stage in ipairs(key.stages) do
  deleted = deleted + redis.call('UNLINK', stage)
end
return deleted
