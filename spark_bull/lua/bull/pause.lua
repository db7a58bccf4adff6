-- Pauses the queue. In a paused queue, moves the jobs that are still in `wait`.
-- @keys wait paused meta_paused meta
-- @args limit
-- @returns number of jobs still to be moved: call again until 0
-- @include bull/lib/pause_queue

return pause_queue(key, tonumber(arg.limit))
