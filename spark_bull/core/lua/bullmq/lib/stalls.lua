-- @include lib: stalls(count_up)
-- @include bullmq/lib: events(emit) waiting(enqueue_job)

local function is_scheduled(key, job_key)
  local call = redis.call
  local scheduler = call('HGET', job_key, 'rjk')
  return scheduler and (call('EXISTS', key.repeats .. ':' .. scheduler) == 1 or call('ZSCORE', key.repeats, scheduler))
end

-- Lets a job that has left `active` wait again, as the next one. If it has stalled once more (`counts`), more than
-- `max_stalled` times now, it gets a deferred failure, with which the next worker fails it, unless a scheduler made it.
local function requeue_stalled(key, arg, id, counts)
  local call, job_key = redis.call, arg.base .. id
  local stalled = counts and count_up(job_key, 'stc')
  if stalled and stalled > tonumber(arg.max_stalled) and not is_scheduled(key, job_key) then
    call('HSET', job_key, 'defa', 'job stalled more than allowable limit')
  end
  enqueue_job(key, arg.bullmq_version, id, 0, 'RPUSH')
  emit(key, arg, 'waiting', 'jobId', id, 'prev', 'active')
  emit(key, arg, 'stalled', 'jobId', id)
end
