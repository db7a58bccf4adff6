-- @include lib: insert_near jobs_before(JOBS_BEFORE) priority_of
-- @include bullmq/lib: priority_score waiting_list

-- The score of a prioritized job behind the next ones of its priority.
local function score_near(key, priority)
  local call, base = redis.call, priority_score(priority, 0)
  local before = call('ZRANGEBYSCORE', key.prioritized, base - 2147483648, base + 2147483647, 'WITHSCORES',
    'LIMIT', JOBS_BEFORE, 1)
  return before[2] or string.format('%.0f', priority_score(priority, call('INCR', key.pc)))
end

-- Makes jobs wait behind the next jobs, in this order; those with a priority behind the next ones of that priority.
local function enqueue_near(key, arg, ids)
  local call, plain = redis.call, {}
  local target, paused_or_full = waiting_list(key, arg.bullmq_version)
  for _, id in ipairs(ids) do
    local priority = priority_of(arg.base .. id)
    if priority > 0 then
      call('ZADD', key.prioritized, score_near(key, priority), id)
    else
      plain[#plain + 1] = id
    end
  end
  if #plain > 0 then
    insert_near(target, plain)
  end
  if not paused_or_full then
    call('ZADD', key.marker, 0, '0')
  end
end
