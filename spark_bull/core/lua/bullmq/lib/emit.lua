-- @include lib: is_written

-- Adds an event of a job to the stream, unless it is left out; see is_written. (In a function with `...`, Lua has a
-- variable `arg` of its own.)
local function emit(key, args, event, ...)
  if is_written(args, event) then
    redis.call('XADD', key.events, '*', 'event', event, ...)
  end
end
