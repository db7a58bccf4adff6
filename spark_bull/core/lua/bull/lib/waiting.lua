-- The keys of the waiting jobs.
-- @include lib: waiting(WALK_STEPS)

-- The list of waiting jobs: `paused` while the queue is paused.
local function waiting_list(key)
  return redis.call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
end

-- Removes jobs that are no longer delayed from the groups in which Node's limiter keeps delayed jobs.
local function leave_limiter(key, ids)
  local call = redis.call
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
    redis.call('ZREM', key.priority, unpack(ids))
    leave_limiter(key, ids)
  end
end

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

-- Groups jobs {id, priority} to {priority, ids, before}, sorted by priority. `before`: number of jobs of the list that
-- are claimed before the group, at most `most` of its own priority among them. Jobs with the priority math.huge have
-- none.
local function by_priority(key, jobs, length, most)
  local groups, group_of = {}, {}
  for _, job in ipairs(jobs) do
    local group = group_of[job.priority]
    if not group then
      local priority = string.format('%.17g', job.priority)
      local before = redis.call('ZCOUNT', key.priority, 0, '(' .. priority) + most
      local all = job.priority == math.huge and length or redis.call('ZCOUNT', key.priority, 0, priority)
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
  local call, last = redis.call, groups[#groups].before
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
  local length, walked = redis.call('LLEN', target), 0
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
  local groups = by_priority(key, jobs, redis.call('LLEN', target), most)
  if groups[#groups].before > MAX_MOVED then
    for _, group in ipairs(groups) do
      group.before = 0
    end
  end
  rebuild_tail(key, target, groups)
end

local priority_inserts = {many = insert_many_by_priority, near = insert_near_by_priority}
