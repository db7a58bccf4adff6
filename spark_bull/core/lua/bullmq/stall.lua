-- Returns running jobs to the queue when their process ends: they have stalled, as if the stalled check had found them.
-- @args ids...
-- @returns {ids of jobs that wait again, {}}
-- @include lib: rescue(stall_owned)
-- @include bullmq/lib: events(event_limit) rescue(requeue_stalled)

redis.call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
return stall_owned(key, arg, function(id, counts)
  requeue_stalled(key, arg, id, counts)
  return true
end)
