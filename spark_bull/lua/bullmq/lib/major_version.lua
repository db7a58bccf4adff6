-- The major version of BullMQ that a queue belongs to: the given one, or what its `meta` says; without a sign of 5, 6.
local function major_version(version, forced_version)
  if forced_version ~= 'auto' then
    return tonumber(forced_version)
  end
  return tonumber(string.match(version or '', '^bullmq:(%d+)%.') or '6')
end
