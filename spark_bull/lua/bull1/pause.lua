-- Pauses the queue; paused already, it only moves what is still in `wait`.
-- @keys wait paused meta_paused
-- @args limit
-- @returns how many jobs are still to be moved: call again until 0
-- @include bull1/lib/pause_queue

return pause_queue(key, tonumber(arg.limit))
