-- Removes the callback of a write that failed, unless it has children: then it stays, and never starts.
-- @args pending...
-- @returns 1 if there is no callback, 0 if it stays
-- @include bullmq/lib: events(event_limit) flows(unlink_job)

if call('EXISTS', key.job) == 0 then
  return 1
end
if call('SCARD', key.children) > #arg.pending or call('EXISTS', key.children_values, key.children_failures) > 0
  or call('ZREM', key.waiting_children, arg.job_id) == 0 then
  return 0
end
unlink_job(key.job)
call('DEL', key.callback)
call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'removed', 'jobId', arg.job_id,
  'prev', 'waiting-children')
return 1
