-- Deletes staged chunks of a write that failed, unless it is registered: then `commit` needs them, or they stay for
-- inspection when the write is broken. A write that was prepared can't be registered any more.
-- @keys stages...
-- @returns number of stage keys deleted

local call = redis.call

local state, leader = call('HGET', key.write, 'state'), call('HGET', key.leader, 'state')
if state and (state ~= 'prepared' or (leader and leader ~= 'prepared')) then
  return 0
end
if state then
  call('DEL', key.leader, key.write)
end
call('DEL', key.manifest)
call('ZREM', key.open, arg.write_id)
local deleted = 0
for _, stage in ipairs(key.stages) do
  deleted = deleted + call('UNLINK', stage)
end
return deleted
