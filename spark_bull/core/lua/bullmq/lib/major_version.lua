-- The major version of BullMQ of a queue: the given one, or the one in its `meta`; 5 if unknown: BullMQ up to 5.19
-- writes none, and BullMQ 6 also finds the jobs that BullMQ 5 has left in `paused`.
local function major_version(version, forced_version)
  if forced_version ~= 'auto' then
    return tonumber(forced_version)
  end
  return tonumber(string.match(version or '', '^bullmq:(%d+)%.') or '5')
end
