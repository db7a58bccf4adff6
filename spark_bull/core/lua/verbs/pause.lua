-- Pauses the queue, once per call of a sender. In a paused queue, moves the jobs that are still in the wrong list.
-- @returns number of jobs still to be moved: call again until 0
-- @include lib: once
-- @include {dialect}/lib: waiting(pause_queue)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return pause_queue(key, arg, tonumber(arg.limit), arg.first == '1')
end)
