-- Jobs wait, are delayed or promoted, or the queue is paused.
-- @include lib: values(finite_number priority_of)
-- @include lib: waiting(clear_delay insert_near JOBS_BEFORE join_lists next_due_of)
-- @include bullmq/lib: events(emit event_limit major_version meta_of)
-- @include bullmq/lib: waiting(enqueue_job enqueue_near priority_score waiting_list)

-- How many of the next waiting jobs are searched for one.
local NEXT_JOBS = 1000

-- Whether a job is prioritized, or one of the next ones of the queue.
local function waits(key, id)
  return call('ZSCORE', key.prioritized, id)
    or call('LPOS', key.wait, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
    or call('LPOS', key.paused, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
end

-- Returns the list of waiting jobs, and whether the marker must not be set: the queue is paused, or the maximum number
-- of jobs is active. BullMQ 5 keeps jobs of a paused queue in `paused`, BullMQ 6 in `wait`.
local function waiting_list(key, forced_version)
  local meta = meta_of(key)
  if meta[1] then
    return major_version(meta[3], forced_version) <= 5 and key.paused or key.wait, true
  end
  local most_active = finite_number(meta[2])
  return key.wait, most_active and call('LLEN', key.active) >= most_active
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
    call('ZADD', key.prioritized, priority_score(priority, call('INCR', key.pc)), job_id)
  else
    call(push, target, job_id)
  end
  if not paused_or_full and not MARKED[key.marker] then
    call('ZADD', key.marker, 0, '0')
    MARKED[key.marker] = true
  end
end

-- The score of a prioritized job behind the next ones of its priority.
local function score_near(key, priority)
  local base = priority_score(priority, 0)
  local before = call('ZRANGEBYSCORE', key.prioritized, base - 2147483648, base + 2147483647, 'WITHSCORES',
    'LIMIT', JOBS_BEFORE, 1)
  return before[2] or string.format('%.0f', priority_score(priority, call('INCR', key.pc)))
end

-- Makes jobs wait behind the next jobs, in this order; those with a priority behind the next ones of that priority.
local function enqueue_near(key, arg, ids)
  local plain = {}
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
  local base, scored = priority_score(priority, 0), {}
  local first = call('ZRANGEBYSCORE', key.prioritized, base - 2147483648, base + 2147483647, 'WITHSCORES', 'LIMIT', 0, 1)
  local stop = first[2] and tonumber(first[2]) or base + call('INCRBY', key.pc, #ids) + 1
  for i, id in ipairs(ids) do
    scored[2 * i - 1], scored[2 * i] = string.format('%.0f', stop - #ids + i - 1), id
  end
  call('ZADD', key.prioritized, unpack(scored))
end

-- Delayed jobs that wait from now on.

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
  local next_due = next_due_of(key.delayed)
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
  call('ZREM', key.delayed, unpack(ids))
  enqueue_near(key, arg, ids)
  for _, id in ipairs(ids) do
    emit(key, arg, 'waiting', 'jobId', id, 'prev', 'delayed')
    clear_delay(arg.base .. id)
  end
end

-- The ZSET of the delayed jobs.

-- The score of a delayed job. Jobs of one millisecond stay in order: each gets the score after the highest existing
-- one, up to 4096 per millisecond. `highest`: the highest scores of this chunk, by time.
local function delayed_score(key, highest, eta)
  local low, high = eta * 4096, eta * 4096 + 4095
  local last = highest[eta]
  if not last then
    local found = call('ZREVRANGEBYSCORE', key.delayed, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
    last = tonumber(found[2])
  end
  local score = last and math.min(last + 1, high) or low
  highest[eta] = score
  return score
end

-- Adds a job to the delayed ones, due at `eta` ms, and sets the marker to the time of the first one.
local function delay_job(key, job_id, eta)
  call('ZADD', key.delayed, delayed_score(key, {}, eta), job_id)
  call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', 'delayed',
    'jobId', job_id, 'delay', string.format('%.0f', eta))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end

-- Adds one of many jobs to the delayed ones, due at `eta` ms; `highest`: see delayed_score. Returns its score.
local function hold_job(key, highest, job_id, eta)
  local score = string.format('%.0f', delayed_score(key, highest, eta))
  call('ZADD', key.delayed, score, job_id)
  call('XADD', key.events, '*', 'event', 'delayed', 'jobId', job_id, 'delay', string.format('%.0f', eta))
  return score
end

-- Sets the marker to the time of the first delayed job, after such jobs were added, and trims their events.
local function mark_held(key)
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
end

-- A queue is paused and resumed.

-- The value that shows that the queue is paused: any; Node's is 1.
local function read(key)
  return call('HGET', key.meta, 'paused')
end

local function write(key, mark)
  call('HSET', key.meta, 'paused', mark)
end

local pause_mark = {read = read, write = write}

-- Pauses a queue; for BullMQ 5, moves its jobs to `paused`. `repeats`: whether the event is also written if the queue
-- is paused already. A pause of a guard becomes one that no guard ends; see lib/guard.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, arg, limit, repeats)
  if call('HSET', key.meta, 'paused', 1) == 1 or repeats then
    call('XADD', key.events, '*', 'event', 'paused')
  end
  call('DEL', key.marker)
  if waiting_list(key, arg.bullmq_version) == key.paused then
    return join_lists(key, key.paused, limit)
  end
  return 0
end

-- Sets the marker that workers block on.
local function wake_workers(key)
  if call('EXISTS', key.wait, key.prioritized) > 0 then
    call('ZADD', key.marker, 0, '0')
    return
  end
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
  end
end

local function resume_queue(key)
  wake_workers(key)
  call('HDEL', key.meta, 'paused')
  call('XADD', key.events, '*', 'event', 'resumed')
end
