-- Removes queues from the registry, unless they were noted again since their times were read.
-- @keys registry
-- @args entries...
-- @returns number of queues removed

-- `entries`: name and time of each queue.
local removed = 0
for i = 1, #arg.entries, 2 do
  local noted = call('ZSCORE', key.registry, arg.entries[i])
  if noted and tonumber(noted) == tonumber(arg.entries[i + 1]) then
    removed = removed + call('ZREM', key.registry, arg.entries[i])
  end
end
return removed
