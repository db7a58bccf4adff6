-- Returns running jobs to the queue when their process ends: they have stalled, as if the stalled check had found them.
-- @args base queue token lock_token max_stalled since ids...
-- @returns {ids of jobs that wait again, ids of jobs that failed}
-- @include bull1/lib/requeue_stalled
-- @include lib/stall_owned

return stall_owned(key, arg, function(id, counts)
  return requeue_stalled(key, arg, id, counts)
end)
