-- Returns running jobs to the queue when their process ends: they have stalled, as if the stalled check had found them.
-- @args base lock_token max_stalled since ids...
-- @returns {ids of jobs that wait again, ids of jobs that failed}
-- @include bull/lib/stalled_requeuer
-- @include lib/stall_owned
-- @include lib/time_ms

return stall_owned(key, arg, stalled_requeuer(key, arg, time_ms()))
