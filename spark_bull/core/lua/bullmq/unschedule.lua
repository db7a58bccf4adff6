-- Removes job schedulers, and their next jobs if these are delayed. `members`: of the ZSET of schedulers, and the start
-- of the ids of their jobs, in turn.
-- @args members...
-- @returns how many schedulers were removed
-- @include lib: schedules(unschedule_once)
-- @include bullmq/lib: events(event_limit) flows(unlink_job) schedules(next_job_of)

return unschedule_once(key, arg, function(job_id)
  unlink_job(arg.base .. job_id)
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'removed', 'jobId', job_id, 'prev', 'delayed')
end, function(member)
  call('DEL', key.repeats .. ':' .. member)
end, function(member, next_ms)
  return next_job_of(key, arg, member, next_ms)
end)
