-- Jobs that one script may remove because of rules how many to keep.
local MAX_REMOVED = 1000

-- What a script adds to `state`, a ZSET of finished jobs, and removes from it. `remove(id)` deletes what a job has. The jobs
-- that one script adds have one score, and Redis sorts those by the text of their ids: `fresh` has them in the order in
-- which they ended.
local function finished_jobs(state, now, remove)
  return {state = state, now = now, remove = remove, fresh = {}, first = 1, is_fresh = {}, may_go = MAX_REMOVED}
end

-- Gives the places of fresh jobs among `ids`, which are to be removed, to those that ended first.
local function oldest_first(finished, ids)
  local fresh, is_fresh = finished.fresh, finished.is_fresh
  for i, id in ipairs(ids) do
    if is_fresh[id] then
      while not is_fresh[fresh[finished.first]] do
        finished.first = finished.first + 1
      end
      ids[i] = fresh[finished.first]
      finished.first = finished.first + 1
    end
  end
end

local function drop_finished(finished, ids)
  if #ids == 0 then
    return
  end
  for _, id in ipairs(ids) do
    finished.remove(id)
    finished.is_fresh[id] = nil
  end
  redis.call('ZREM', finished.state, unpack(ids))
  finished.may_go = finished.may_go - #ids
end

-- Removes the oldest jobs until there is room for `coming` others.
local function make_room(finished, keep, coming)
  local call, state = redis.call, finished.state
  local over = keep.count and keep.count > 0 and call('ZCARD', state) + coming - keep.count or 0
  over = math.min(over, finished.may_go)
  if over > 0 then
    local ids = call('ZRANGE', state, 0, over - 1)
    oldest_first(finished, ids)
    drop_finished(finished, ids)
  end
end

-- Removes jobs that are older than `keep` allows.
local function drop_old(finished, keep)
  if keep.age then
    local most = math.min(keep.limit or MAX_REMOVED, finished.may_go)
    drop_finished(finished,
      redis.call('ZREVRANGEBYSCORE', finished.state, finished.now - keep.age * 1000, '-inf', 'LIMIT', 0, most))
  end
end

-- Removes the oldest jobs until there are as many as `keep` allows: {count, age (s), limit}.
local function keep_rule(finished, keep)
  drop_old(finished, keep)
  make_room(finished, keep, 0)
end

-- Adds jobs of one rule in the order in which they ended, as if one after the other, and removes what `keep` (see
-- keep_rule) doesn't allow.
local function add_finished(finished, ids, keep)
  local surplus = keep.count and keep.count > 0 and math.max(0, #ids - keep.count) or 0
  for i = 1, surplus do
    finished.remove(ids[i])
  end
  make_room(finished, keep, #ids - surplus)
  local scored, finished_on, fresh = {}, string.format('%.0f', finished.now), finished.fresh
  for i = surplus + 1, #ids do
    local id = ids[i]
    scored[#scored + 1], scored[#scored + 2] = finished_on, id
    fresh[#fresh + 1], finished.is_fresh[id] = id, true
  end
  redis.call('ZADD', finished.state, unpack(scored))
  drop_old(finished, keep)
end
