-- @include bull/lib/insert_by_priority
-- @include lib/walk_steps

-- {id, priority} pairs as {priority, ids, before}, by priority. `before`: how many jobs are taken before the first of them,
-- those of its own priority included unless `first`.
local function by_priority(key, jobs, length, first)
  local groups, group_of = {}, {}
  for _, job in ipairs(jobs) do
    local group = group_of[job[2]]
    if not group then
      local before = redis.call('ZCOUNT', key.priority, 0, (first and '(' or '') .. string.format('%.17g', job[2]))
      group = {priority = job[2], ids = {}, before = math.min(before, length)}
      groups[#groups + 1], group_of[job[2]] = group, group
    end
    group.ids[#group.ids + 1] = job[1]
  end
  table.sort(groups, function(one, other)
    return one.priority < other.priority
  end)
  return groups
end

-- Takes what comes before the last of the jobs out of the list, and puts it back with the jobs in between.
local function rebuild_tail(key, target, groups)
  local call, last = redis.call, groups[#groups].before
  local tail = last > 0 and call('LRANGE', target, -last, -1) or {}
  -- From the job that is taken first to the one that is taken last; `done` of the tail are among them.
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

-- Puts {id, priority} pairs where insert_by_priority would, one after the other. That walks the list from its head each
-- time: where it is too far, the tail is built anew.
local function insert_many_by_priority(key, target, jobs)
  if #jobs == 0 then
    return
  end
  local length, walked = redis.call('LLEN', target), 0
  local groups = by_priority(key, jobs, length)
  for _, group in ipairs(groups) do
    walked = walked + #group.ids * (length - group.before)
  end
  if walked > WALK_STEPS then
    rebuild_tail(key, target, groups)
    return
  end
  for _, job in ipairs(jobs) do
    insert_by_priority(key, target, job[1], job[2])
  end
end

-- Entries of a list that one script takes out and puts back.
local MAX_MOVED = 5000

-- Puts {id, priority} pairs before all others of their priority, in this order; math.huge stands for jobs without one, which
-- are taken after those that have one. Where that is too far from the end of the list, they are the next ones of all.
local function insert_first_by_priority(key, target, jobs)
  if #jobs == 0 then
    return
  end
  local groups = by_priority(key, jobs, redis.call('LLEN', target), true)
  if groups[#groups].before > MAX_MOVED then
    for _, group in ipairs(groups) do
      group.before = 0
    end
  end
  rebuild_tail(key, target, groups)
end
