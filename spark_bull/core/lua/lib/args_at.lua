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
