-- The keys of `key` that have names, for the queue whose keys start with `base`.
local function keys_at(key, arg, base)
  if base == arg.base then
    return key
  end
  local keys = {}
  for name, full in pairs(key) do
    if type(full) == 'string' then
      keys[name] = base .. string.sub(full, #arg.base + 1)
    end
  end
  return keys
end
