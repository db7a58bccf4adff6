-- Pauses the queue, once per call of a sender. In a paused queue, moves the jobs that are still in `wait`.
-- @args call ttl_ms limit first
-- @returns number of jobs still to be moved: call again until 0
-- @include lib/once
-- @include {dialect}/lib/pause_queue

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return pause_queue(key, tonumber(arg.limit), arg.first == '1')
end)
