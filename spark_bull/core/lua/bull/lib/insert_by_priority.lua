-- Inserts a job into a list at the place of its priority: Bull 3 and 4 keep prioritized jobs in `wait`.
local function insert_by_priority(key, target, job_id, priority)
  redis.call('ZADD', key.priority, priority, job_id)
  local before = redis.call('ZCOUNT', key.priority, 0, priority) - 1
  local pivot = redis.call('LINDEX', target, redis.call('LLEN', target) - before)
  if pivot then
    redis.call('LINSERT', target, 'BEFORE', pivot, job_id)
  else
    redis.call('RPUSH', target, job_id)
  end
end
