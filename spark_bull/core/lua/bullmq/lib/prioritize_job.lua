-- @include bullmq/lib: enqueue_job priority_score waiting_list

-- Changes the priority of a job; one that waits takes its new place, the first of that priority with `lifo`. `state`: see
-- sorted_state.
local function prioritize_job(key, arg, job_id, priority, lifo, state)
  local call = redis.call
  local is_listed = state == 'unknown' and call('LREM', waiting_list(key, arg.bullmq_version), -1, job_id) == 1
  if is_listed or (state == 'prioritized' and call('ZREM', key.prioritized, job_id) == 1) then
    if priority > 0 and lifo then
      call('ZADD', key.prioritized, priority_score(priority, 0), job_id)
    else
      enqueue_job(key, arg.bullmq_version, job_id, priority, lifo and 'RPUSH' or 'LPUSH')
    end
  end
  call('HSET', arg.base .. job_id, 'priority', priority)
  return 'done'
end
