-- The keys of the waiting jobs.
-- @include lib: numbers(finite_number priority_of) waiting(insert_near JOBS_BEFORE)
-- @include bullmq/lib: meta(major_version meta_of)

-- How many of the next waiting jobs are searched for one.
local NEXT_JOBS = 1000

-- Whether a job is prioritized, or one of the next ones of the queue.
local function waits(key, id)
  return redis.call('ZSCORE', key.prioritized, id)
    or redis.call('LPOS', key.wait, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
    or redis.call('LPOS', key.paused, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
end

-- Returns the list of waiting jobs, and whether the marker must not be set: the queue is paused, or the maximum number
-- of jobs is active. BullMQ 5 keeps jobs of a paused queue in `paused`, BullMQ 6 in `wait`.
local function waiting_list(key, forced_version)
  local meta = meta_of(key)
  if meta[1] then
    return major_version(meta[3], forced_version) <= 5 and key.paused or key.wait, true
  end
  local most_active = finite_number(meta[2])
  return key.wait, most_active and redis.call('LLEN', key.active) >= most_active
end

-- The score of a prioritized job: its priority, then its place (of the counter `pc`) among the jobs of that priority.
local function priority_score(priority, place)
  return priority * 4294967296 + place % 4294967296
end

-- The markers that this script has set.
local MARKED = {}

-- Adds a job to the prioritized ones, or to the end of the waiting list that `push` means, and sets the marker.
local function enqueue_job(key, version, job_id, priority, push)
  local target, paused_or_full = waiting_list(key, version)
  if priority > 0 then
    redis.call('ZADD', key.prioritized, priority_score(priority, redis.call('INCR', key.pc)), job_id)
  else
    redis.call(push, target, job_id)
  end
  if not paused_or_full and not MARKED[key.marker] then
    redis.call('ZADD', key.marker, 0, '0')
    MARKED[key.marker] = true
  end
end

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

-- Adds jobs of one priority before all others of that priority, in this order: below the lowest existing score, or with
-- the next places of the counter. (Node gives all of them one score, and Redis sorts equal scores by the text of the
-- ids.)
local function put_first(key, priority, ids)
  local call, base, scored = redis.call, priority_score(priority, 0), {}
  local first = call('ZRANGEBYSCORE', key.prioritized, base - 2147483648, base + 2147483647, 'WITHSCORES', 'LIMIT', 0, 1)
  local stop = first[2] and tonumber(first[2]) or base + call('INCRBY', key.pc, #ids) + 1
  for i, id in ipairs(ids) do
    scored[2 * i - 1], scored[2 * i] = string.format('%.0f', stop - #ids + i - 1), id
  end
  call('ZADD', key.prioritized, unpack(scored))
end
