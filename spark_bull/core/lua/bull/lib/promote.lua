-- Delayed jobs that wait from now on.
-- @include lib: numbers(priority_of) promote(clear_delay next_due_of) waiting(JOBS_BEFORE WALK_STEPS)
-- @include bull/lib: events(publish) waiting(insert_by_priority priority_inserts waiting_list)
-- @include {dialect}/lib: promote(announce_waiting)

-- Publishes that a job waits.
local function announce_waiting(_, arg, job_id)
  publish(arg, 'waiting', arg.base .. 'waiting@' .. arg.token, job_id)
end

-- Makes a job wait that has left `delayed`, at the place of its priority.
local function enqueue_promoted(key, arg, job_id)
  local job_key, target = arg.base .. job_id, waiting_list(key)
  local priority = priority_of(job_key)
  if priority > 0 then
    insert_by_priority(key, target, job_id, priority)
  else
    redis.call('LPUSH', target, job_id)
  end
  announce_waiting(key, arg, job_id)
  clear_delay(job_key)
end

-- Promotes delayed jobs of Bull that are due, `limit` at most, in the order in which they are due; with priorities as
-- many as the length of the list allows. Returns when the next one is due, ms, or false, and how many it has promoted.
local function promote_due_jobs(key, arg, now, limit)
  local call = redis.call
  local target = waiting_list(key)
  local due = call('ZRANGEBYSCORE', key.delayed, '-inf', (now + 1) * 4096 - 1, 'LIMIT', 0, limit)
  local plain, moved, walked, length = {}, 0, 0, call('LLEN', target)
  local function push()
    if #plain > 0 then
      call('LPUSH', target, unpack(plain))
      plain = {}
    end
  end
  for _, id in ipairs(due) do
    if walked > WALK_STEPS then
      break
    end
    local job_key = arg.base .. id
    local priority = priority_of(job_key)
    if priority > 0 then
      push()
      insert_by_priority(key, target, id, priority)
      walked = walked + length + moved
    else
      plain[#plain + 1] = id
    end
    announce_waiting(key, arg, id)
    clear_delay(job_key)
    moved = moved + 1
  end
  push()
  if moved > 0 then
    call('ZREM', key.delayed, unpack(due, 1, moved))
  end
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if moved > 0 and first[2] then
    call('PUBLISH', key.delayed, tonumber(first[2]) / 4096)
  end
  return next_due_of(key.delayed), moved
end

-- Makes delayed jobs of groups wait behind the next ones of their priority, in this order, and publishes them.
local function promote_group(key, arg, ids)
  local jobs = {}
  for i, id in ipairs(ids) do
    local priority = priority_of(arg.base .. id)
    jobs[i] = {id = id, priority = priority > 0 and priority or math.huge}
    clear_delay(arg.base .. id)
  end
  redis.call('ZREM', key.delayed, unpack(ids))
  priority_inserts.near(key, waiting_list(key), jobs, JOBS_BEFORE)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end
