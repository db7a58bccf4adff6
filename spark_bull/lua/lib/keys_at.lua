-- The keys of `key`, for the queue whose keys start with `base`.
local function keys_at(key, arg, base)
  if base == arg.base then
    return key
  end
  local keys = {}
  for name, full in pairs(key) do
    keys[name] = base .. string.sub(full, #arg.base + 1)
  end
  return keys
end
