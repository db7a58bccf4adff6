-- The major version of BullMQ of a queue: the given one, or that of its `meta`; 6 if unknown.
local function major_version(version, forced_version)
  if forced_version ~= 'auto' then
    return tonumber(forced_version)
  end
  return tonumber(string.match(version or '', '^bullmq:(%d+)%.') or '6')
end
