-- @include bullmq/lib: event_limit free_deduplication leave_any_state sorted_state unlink_job

-- Removes a job {key, id, base, keys, state} from its state, frees its deduplication id, and publishes that it was
-- removed. A parent that has lost its last child has left `waiting-children`.
local function remove_from_state(job, deduplication_id)
  local call = redis.call
  local state = job.state == 'waiting_children' and sorted_state(job.keys, job.id) or job.state
  free_deduplication(job.base, job.id, deduplication_id)
  local prev = leave_any_state(job.keys, job.id, state)
  if unlink_job(job.key) > 0 then
    call('XADD', job.keys.events, 'MAXLEN', '~', event_limit(job.keys), '*', 'event', 'removed',
      'jobId', job.id, 'prev', prev)
  end
end
