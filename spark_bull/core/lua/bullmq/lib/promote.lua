-- Delayed jobs that wait from now on.
-- @include lib: numbers(priority_of) promote(clear_delay next_due_of)
-- @include bullmq/lib: events(emit) waiting(enqueue_job enqueue_near priority_score waiting_list)

-- Makes a job wait that has left `delayed`.
local function enqueue_promoted(key, arg, job_id)
  local job_key = arg.base .. job_id
  enqueue_job(key, arg.bullmq_version, job_id, priority_of(job_key), 'LPUSH')
  emit(key, arg, 'waiting', 'jobId', job_id, 'prev', 'delayed')
  clear_delay(job_key)
end

-- Promotes delayed jobs that are due, `limit` at most, the first one first.
-- Returns when the next one is due, ms, or false, and how many were promoted.
local function promote_due_jobs(key, arg, now, limit)
  local call, next_due = redis.call, next_due_of(key.delayed)
  if not next_due or next_due > now then
    return next_due, 0
  end
  local due = call('ZRANGEBYSCORE', key.delayed, '-inf', (now + 1) * 4096 - 1, 'LIMIT', 0, limit)
  if #due > 0 then
    local target, paused_or_full = waiting_list(key, arg.bullmq_version)
    call('ZREM', key.delayed, unpack(due))
    local plain, prioritized = {}, {}
    for _, id in ipairs(due) do
      local job_key = arg.base .. id
      local priority = priority_of(job_key)
      if priority > 0 then
        prioritized[#prioritized + 1] = priority_score(priority, call('INCR', key.pc))
        prioritized[#prioritized + 1] = id
      else
        plain[#plain + 1] = id
      end
      emit(key, arg, 'waiting', 'jobId', id, 'prev', 'delayed')
      clear_delay(job_key)
    end
    if #plain > 0 then
      call('LPUSH', target, unpack(plain))
    end
    if #prioritized > 0 then
      call('ZADD', key.prioritized, unpack(prioritized))
    end
    if not paused_or_full then
      call('ZADD', key.marker, 0, '0')
    end
  end
  return next_due_of(key.delayed), #due
end

-- Makes delayed jobs of groups wait behind the next jobs; see enqueue_near.
local function promote_group(key, arg, ids)
  redis.call('ZREM', key.delayed, unpack(ids))
  enqueue_near(key, arg, ids)
  for _, id in ipairs(ids) do
    emit(key, arg, 'waiting', 'jobId', id, 'prev', 'delayed')
    clear_delay(arg.base .. id)
  end
end
