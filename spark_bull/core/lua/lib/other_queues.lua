-- Keys and arguments of other queues.

-- The arguments of `arg`, for the queue of this name, whose keys start with `base`.
local function args_at(arg, base, queue)
  if base == arg.base then
    return arg
  end
  local args = {}
  for name, value in pairs(arg) do
    args[name] = value
  end
  args.base, args.queue = base, queue
  return args
end

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

-- The ends of the keys of a parent of calls: its hash; the calls that are pending; values, reasons and details of those
-- that have ended; the calls whose jobs are kept when they end.
local CALL_KEYS = {'', ':dependencies', ':processed', ':failed', ':details', ':kept'}
