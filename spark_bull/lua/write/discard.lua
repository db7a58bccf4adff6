-- Deletes the staged chunks of a write that failed, unless it is registered: then `commit` needs them, or they stay for
-- inspection when the write is broken.
-- @keys write stages...
-- @args
-- @returns number of stage keys deleted

if redis.call('EXISTS', key.write) == 1 then
  return 0
end
local deleted = 0
for _, stage in ipairs(key.stages) do
  deleted = deleted + redis.call('UNLINK', stage)
end
return deleted
