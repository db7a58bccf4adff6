-- Returns running jobs to the queue when their process ends: they have stalled, as if the stalled check had found them.
-- @args ids...
-- @returns {ids of jobs that wait again, ids of jobs that failed}
-- @include lib: numbers(time_ms) stalls(stall_owned)
-- @include {dialect}/lib: stalls(stalled_requeuer)

return stall_owned(key, arg, stalled_requeuer(key, arg, time_ms()))
