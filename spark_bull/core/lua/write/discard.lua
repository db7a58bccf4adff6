-- Deletes staged chunks of a write that failed, unless it is registered: then `commit` needs them, or they stay for
-- inspection when the write is broken. A prepared write has to be given up before, by `decide`.
-- @keys stages...
-- @returns number of stage keys deleted

local state = call('HGET', key.write, 'state')
if state and state ~= 'prepared' then
  return 0
end
call('DEL', key.write)
call('DEL', key.manifest)
call('ZREM', key.open, arg.write_id)
local deleted = 0
for _, stage in ipairs(key.stages) do
  deleted = deleted + call('UNLINK', stage)
end
return deleted
