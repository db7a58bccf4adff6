-- Forgets staged chunks of a write that failed, unless a registered write owns them.
-- @keys stages...
-- @args
-- @returns how many stage keys were deleted

local deleted = 0
for _, stage in ipairs(key.stages) do
  if redis.call('PTTL', stage) ~= -1 then
    deleted = deleted + redis.call('UNLINK', stage)
  end
end
return deleted
