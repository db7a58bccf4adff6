-- Returns running jobs to the queue when their process ends: they have stalled, as if the stalled check had found them.
-- @args ids...
-- @returns {ids of jobs that wait again, ids of jobs that failed}
-- @include lib: rescue(stall_owned) values(time_ms)
-- @include {dialect}/lib: rescue(stalled_requeuer)

return stall_owned(key, arg, stalled_requeuer(key, arg, time_ms()))
