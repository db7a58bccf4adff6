-- Pauses the queue, once per call of a sender. In a paused queue, moves the jobs that are still in the wrong list.
-- @args bullmq_version call ttl_ms limit first
-- @returns number of jobs still to be moved: call again until 0
-- @include bullmq/lib/pause_queue
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return pause_queue(key, arg.bullmq_version, tonumber(arg.limit), arg.first == '1')
end)
