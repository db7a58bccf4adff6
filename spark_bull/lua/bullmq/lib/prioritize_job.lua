-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/priority_score
-- @include bullmq/lib/waiting_list

-- Changes the priority of a job; one that waits takes its new place, the first of that priority with `lifo`.
local function prioritize_job(key, arg, job_id, priority, lifo)
  local call = redis.call
  local target = waiting_list(key, arg.bullmq_version)
  if call('ZREM', key.prioritized, job_id) == 1 or call('LREM', target, -1, job_id) == 1 then
    if priority > 0 and lifo then
      call('ZADD', key.prioritized, priority_score(priority, 0), job_id)
    else
      enqueue_job(key, arg.bullmq_version, job_id, priority, lifo and 'RPUSH' or 'LPUSH')
    end
  end
  call('HSET', arg.base .. job_id, 'priority', priority)
  return 'done'
end
