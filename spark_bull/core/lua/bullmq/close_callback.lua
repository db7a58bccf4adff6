-- Removes a member of `pending` from the children of a write's callback, as the jobs of a queue are added. With the
-- last member, and when all jobs have ended, the callback starts.
-- @returns nothing
-- @include lib: values(time_ms)
-- @include bullmq/lib: flows(release_parent)

if call('SREM', key.children, arg.pending) == 1 and call('SCARD', key.children) == 0
  and call('EXISTS', key.job) == 1 then
  release_parent(key, arg, key.job, arg.job_id, key.waiting_children, time_ms())
end
if call('EXISTS', key.write) == 1 then
  call('HSET', key.write, 'callbackState', 'closed')
end
