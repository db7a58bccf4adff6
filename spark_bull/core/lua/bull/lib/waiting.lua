-- Jobs wait, are delayed or promoted, or the queue is paused.
-- @include lib: values(priority_of) waiting(clear_delay JOBS_BEFORE join_lists next_due_of WALK_STEPS)
-- @include bull/lib: events(publish) waiting(insert_by_priority priority_inserts waiting_list)
-- @include {dialect}/lib: waiting(announce_waiting)

-- The list of waiting jobs: `paused` while the queue is paused.
local function waiting_list(key)
  return call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
end

-- Removes jobs that are no longer delayed from the groups in which Node's limiter keeps delayed jobs.
local function leave_limiter(key, ids)
  if call('EXISTS', key.limiter_index) == 1 then
    for _, id in ipairs(ids) do
      local group = call('HGET', key.limiter_index, id)
      if group then
        call('SREM', group, id)
        call('HDEL', key.limiter_index, id)
      end
    end
  end
end

-- Deletes what Bull stores about waiting and delayed jobs outside of these states, when they have left them.
local function leave_wait(key, ids)
  if #ids > 0 then
    call('ZREM', key.priority, unpack(ids))
    leave_limiter(key, ids)
  end
end

-- Inserts a job into a list at the place of its priority: Bull 3 and 4 keep prioritized jobs in `wait`.
local function insert_by_priority(key, target, job_id, priority)
  call('ZADD', key.priority, priority, job_id)
  local before = call('ZCOUNT', key.priority, 0, priority) - 1
  local pivot = call('LINDEX', target, call('LLEN', target) - before)
  if pivot then
    call('LINSERT', target, 'BEFORE', pivot, job_id)
  else
    call('RPUSH', target, job_id)
  end
end

-- Groups jobs {id, priority} to {priority, ids, before}, sorted by priority. `before`: number of jobs of the list that
-- are claimed before the group, at most `most` of its own priority among them. Jobs with the priority math.huge have
-- none.
local function by_priority(key, jobs, length, most)
  local groups, group_of = {}, {}
  for _, job in ipairs(jobs) do
    local group = group_of[job.priority]
    if not group then
      local priority = string.format('%.17g', job.priority)
      local before = call('ZCOUNT', key.priority, 0, '(' .. priority) + most
      local all = job.priority == math.huge and length or call('ZCOUNT', key.priority, 0, priority)
      group = {priority = job.priority, ids = {}, before = math.min(before, all, length)}
      groups[#groups + 1], group_of[job.priority] = group, group
    end
    group.ids[#group.ids + 1] = job.id
  end
  table.sort(groups, function(one, other)
    return one.priority < other.priority
  end)
  return groups
end

-- Removes the jobs that come before the last group from the list, and pushes them again with the groups in between.
local function rebuild_tail(key, target, groups)
  local last = groups[#groups].before
  local tail = last > 0 and call('LRANGE', target, -last, -1) or {}
  -- In the order in which jobs are claimed; `done`: number of jobs of the tail in it.
  local merged, done = {}, 0
  for _, group in ipairs(groups) do
    while done < group.before do
      merged[#merged + 1] = tail[#tail - done]
      done = done + 1
    end
    for _, id in ipairs(group.ids) do
      if group.priority < math.huge then
        call('ZADD', key.priority, group.priority, id)
      end
      merged[#merged + 1] = id
    end
  end
  if last > 0 then
    call('LTRIM', target, 0, -last - 1)
  end
  local pushed = {}
  for i = #merged, 1, -1 do
    pushed[#pushed + 1] = merged[i]
    if #pushed == 5000 or i == 1 then
      call('RPUSH', target, unpack(pushed))
      pushed = {}
    end
  end
end

-- Inserts jobs {id, priority} at the places that insert_by_priority would find. That searches the list from its head
-- for each job: where this takes too many steps, the tail is rebuilt instead.
local function insert_many_by_priority(key, target, jobs)
  if #jobs == 0 then
    return
  end
  local length, walked = call('LLEN', target), 0
  local groups = by_priority(key, jobs, length, math.huge)
  for _, group in ipairs(groups) do
    walked = walked + #group.ids * (length - group.before)
  end
  if walked > WALK_STEPS then
    rebuild_tail(key, target, groups)
    return
  end
  for _, job in ipairs(jobs) do
    insert_by_priority(key, target, job.id, job.priority)
  end
end

-- Maximum number of list entries that one script removes and pushes again.
local MAX_MOVED = 5000

-- Inserts jobs {id, priority} behind the next `most` jobs of their priority, in this order; math.huge stands for jobs
-- without one, which are claimed last. Where these places are too far from the end of the list, the jobs become the next
-- ones of all.
local function insert_near_by_priority(key, target, jobs, most)
  if #jobs == 0 then
    return
  end
  local groups = by_priority(key, jobs, call('LLEN', target), most)
  if groups[#groups].before > MAX_MOVED then
    for _, group in ipairs(groups) do
      group.before = 0
    end
  end
  rebuild_tail(key, target, groups)
end

local priority_inserts = {many = insert_many_by_priority, near = insert_near_by_priority}

-- Delayed jobs that wait from now on.

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
    call('LPUSH', target, job_id)
  end
  announce_waiting(key, arg, job_id)
  clear_delay(job_key)
end

-- Promotes delayed jobs of Bull that are due, `limit` at most, in the order in which they are due; with priorities as
-- many as the length of the list allows. Returns when the next one is due, ms, or false, and how many it has promoted.
local function promote_due_jobs(key, arg, now, limit)
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
  call('ZREM', key.delayed, unpack(ids))
  priority_inserts.near(key, waiting_list(key), jobs, JOBS_BEFORE)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end

-- The ZSET of the delayed jobs.

-- Adds an existing job to the delayed ones, due at `eta` ms, and publishes that time. Returns its score. Jobs of one
-- millisecond are ordered by the last bits of their ids; an id that is not a number counts as 0.
local function delay_job(key, job_id, eta)
  local number = tonumber(job_id)
  local score = eta * 4096 + (number and number % 1 == 0 and bit.band(number % 4096, 0xfff) or 0)
  local text = string.format('%.0f', score)
  call('ZADD', key.delayed, text, job_id)
  call('PUBLISH', key.delayed, score / 4096)
  return text
end

-- Delays the settled jobs that a worker delays: {id, until (ms)}.
local function delay_jobs(settling)
  for _, job in ipairs(settling.outcomes.delayed) do
    if settling.mine[job.id] then
      delay_job(settling.key, job.id, math.max(job['until'], settling.now))
    end
  end
end

-- A queue is paused and resumed.

-- The value that shows that the queue is paused: any; Node's is 1.
local function read(key)
  return call('GET', key.meta_paused) or call('HGET', key.meta, 'paused')
end

local function write(key, mark)
  call('SET', key.meta_paused, mark)
end

local pause_mark = {read = read, write = write}

-- Pauses a queue by moving its jobs to `paused`, which workers do not read. The field in `meta` is for programs that
-- use BullMQ. `repeats`: whether the event is also published if the queue is paused already. A pause of
-- a guard becomes one that no guard ends; see lib/guard.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, _, limit, repeats)
  local is_new = call('EXISTS', key.meta_paused) == 0
  call('SET', key.meta_paused, 1)
  call('HSET', key.meta, 'paused', 1)
  if is_new or repeats then
    call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end

local function resume_queue(key)
  call('DEL', key.meta_paused)
  call('HDEL', key.meta, 'paused')
  call('PUBLISH', key.resumed, 'resumed')
end
