-- Pauses the queue. In a paused queue, moves the jobs that are still in the wrong list.
-- @keys wait paused active meta events marker
-- @args bullmq_version limit
-- @returns number of jobs still to be moved: call again until 0
-- @include bullmq/lib/pause_queue

return pause_queue(key, arg.bullmq_version, tonumber(arg.limit))
