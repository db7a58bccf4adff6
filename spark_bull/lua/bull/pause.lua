-- Pauses the queue; paused already, it only moves what is still in `wait`.
-- @keys wait paused meta_paused meta
-- @args limit
-- @returns how many jobs are still to be moved: call again until 0
-- @include bull/lib/pause_queue

return pause_queue(key, tonumber(arg.limit))
