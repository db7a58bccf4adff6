-- @include lib/group_of
-- @include lib/group_queue

-- Jobs that one call moves to `delayed` at most, and that it reads at a time.
local MAX_HELD = 250
local GROUP_PASS = 100
local MAX_PASSES = 20
-- The rank of jobs that come after all others of their group.
local LAST_RANK = 99999999
-- Jobs of a group that are due again in one `lock_ms`, in case that no running job of the group ends.
local DUE_TOGETHER = 1000

-- The number of running jobs of a group. Where it has reached the limit, jobs without a lock are removed: their worker
-- has died.
local function running_of(key, base, group, limit)
  local call, number = redis.call, tonumber(group)
  local count = call('ZCOUNT', key.group_active, number, number)
  if count < limit then
    return count
  end
  local ids, locks = call('ZRANGEBYSCORE', key.group_active, number, number, 'LIMIT', 0, 5000), {}
  for i, id in ipairs(ids) do
    locks[i] = base .. id .. ':lock'
  end
  if call('EXISTS', unpack(locks)) < #locks then
    for i, id in ipairs(ids) do
      if call('EXISTS', locks[i]) == 0 then
        call('ZREM', key.group_active, id)
        count = count - 1
      end
    end
  end
  return count
end

-- Deletes the counters of windows that have ended.
local function drop_windows(key, now)
  local over = redis.call('ZRANGEBYSCORE', key.group_windows, '-inf', now, 'LIMIT', 0, 1000)
  if #over > 0 then
    redis.call('ZREM', key.group_windows, unpack(over))
    redis.call('HDEL', key.group_started, unpack(over))
  end
end

-- What a group may start, as this call knows it: {running, started, window_end}.
local function room_of(key, base, settings, group, now)
  local room = {running = 0, started = 0}
  if settings.concurrency then
    room.running = running_of(key, base, group, settings.concurrency)
  end
  if settings.max then
    room.window_end = tonumber(redis.call('ZSCORE', key.group_windows, group)) or now + settings.duration_ms
    room.started = tonumber(redis.call('HGET', key.group_started, group)) or 0
  end
  return room
end

local function free_in(settings, room)
  return math.min((settings.concurrency or math.huge) - room.running, (settings.max or math.huge) - room.started)
end

-- When the job with so many delayed jobs of its group before it is due: in the first window with a place for it, if
-- there is a rate limit. A running job that ends promotes the next one; jobs that wait for that are due when a job of a
-- dead worker has lost its lock.
local function due_of(settings, room, before, now, lock_ms)
  local due = now
  if settings.concurrency and room.running >= settings.concurrency or not settings.max then
    due = now + lock_ms * (1 + math.floor(before / DUE_TOGETHER))
  end
  if settings.max then
    local ahead = room.started + before - settings.max
    if ahead >= 0 then
      due = math.max(due, room.window_end + math.floor(ahead / settings.max) * settings.duration_ms)
    end
  end
  -- At least a few ms, so that a job is not moved back and forth without a pause.
  return math.max(due, now + 5)
end

local function count_start(key, settings, group, room, id)
  if settings.concurrency then
    room.running = room.running + 1
    redis.call('ZADD', key.group_active, group, id)
  end
  if settings.max then
    room.started = room.started + 1
    if redis.call('HINCRBY', key.group_started, group, 1) == 1 then
      redis.call('ZADD', key.group_windows, room.window_end, group)
    end
  end
end

-- The limits of the groups of jobs, nil without `arg.group`. `hold(id, rank, timestamp, opts, data)` returns whether
-- the job must wait: then it is delayed by `delay(id, eta)`, else it counts as started. `refill()` promotes delayed
-- jobs of groups in which jobs may start, by `promote(ids)`, and returns whether there were any. `may_hold()`: whether
-- the call may delay further jobs.
local function group_limits(key, arg, now, delay, promote)
  if arg.group == '' then
    return nil
  end
  local call, settings, lock_ms = redis.call, cmsgpack.unpack(arg.group), tonumber(arg.lock_ms)
  local rooms, refillable, held, limits = {}, {}, 0, {}
  drop_windows(key, now)

  function limits.hold(id, rank, timestamp, opts, data)
    local group = group_of(settings.path, opts, data)
    if not group then
      return false
    end
    local room = rooms[group] or room_of(key, arg.base, settings, group, now)
    rooms[group] = room
    local free, has_delayed = free_in(settings, room), call('EXISTS', key.group_delayed) == 1
    local place = (has_delayed or free <= 0) and place_of(group, rank, timestamp, id)
    if has_delayed then
      call('ZREMRANGEBYLEX', key.group_delayed, '[' .. place, '(' .. place .. '\255')
    end
    local is_next = free > 0 and not (has_delayed and #first_delayed(key, group, 1, place) > 0)
    if is_next then
      count_start(key, settings, group, room, id)
    else
      local before = call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. place)
      delay(id, due_of(settings, room, before, now, lock_ms))
      call('ZADD', key.group_delayed, 0, place .. call('ZSCORE', key.delayed, id))
      held = held + 1
    end
    if free > 0 and has_delayed then
      refillable[group] = room
    end
    return not is_next
  end

  function limits.refill()
    local promoted = 0
    for group, room in pairs(refillable) do
      local free = math.min(free_in(settings, room), GROUP_PASS)
      promoted = promoted + (free > 0 and promote_of_group(key, group, free, promote) or 0)
    end
    refillable = {}
    return promoted > 0
  end

  function limits.may_hold()
    return held < MAX_HELD
  end

  return limits
end

-- Claims up to `count` of the waiting jobs: `take(count)` processes the next ones while `has_room()`, and returns
-- whether it has read the last one. Only limits of groups, which hold jobs back, need several passes. Returns the same.
local function take_passes(groups, count, take, has_room)
  if not groups then
    return take(count)
  end
  local passes, is_over = 0, false
  while not is_over and passes < MAX_PASSES and has_room() do
    is_over, passes = take(math.max(count, GROUP_PASS)), passes + 1
  end
  return is_over
end
