-- @include lib: group_of group_queue group_room

-- Jobs that one call moves to `delayed` at most, and that it reads at a time.
local MAX_HELD = 150
-- Groups whose jobs are promoted by one call, as their windows have ended.
local MAX_ENDED = 100

-- Deletes the counters of windows that have ended; returns their groups.
local function drop_windows(key, now)
  local over = redis.call('ZRANGEBYSCORE', key.group_windows, '-inf', now, 'LIMIT', 0, MAX_ENDED)
  if #over > 0 then
    redis.call('ZREM', key.group_windows, unpack(over))
    redis.call('HDEL', key.group_started, unpack(over))
  end
  return over
end

-- When a job is due that has `before` delayed jobs of its group before it: in the first window with a place for it, if
-- there is a rate limit. A running job that ends promotes the next one; jobs that wait for that are due when a job of a
-- dead worker has lost its lock, as many at a time as a group may run, ten at least.
local function due_of(settings, room, before, now, lock_ms)
  local due, ahead = now, room.promoted + before
  if settings.concurrency and room.running + ahead >= settings.concurrency or not settings.max then
    due = now + lock_ms * (1 + math.floor(before / math.max(10, settings.concurrency)))
  end
  if settings.max then
    local late = room.started + ahead - settings.max
    if late >= 0 then
      due = math.max(due, room.window_end + math.floor(late / settings.max) * settings.duration_ms)
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
    redis.call('HSET', key.group_started, group, room.started)
    if room.started == 1 then
      redis.call('ZADD', key.group_windows, room.window_end, group)
    end
  end
end

-- The limits of the groups of jobs, nil without `arg.group`, or if the call is to claim no job. `admit(may_start, id,
-- rank, timestamp, opts, data)` returns 'started' (the job was counted), 'held' (it was delayed by `delay(id, eta)`,
-- which returns its score, as it must wait) or, unless `may_start`, 'ready'. `refill()` promotes delayed jobs of groups
-- in which jobs may start, and returns whether there were any. `may_hold()`: whether the call may
-- delay further jobs. `next_due(due)`: the earlier one of `due` and the time at which `refill` can promote jobs again,
-- as a window ends. The first jobs for windows that have ended are promoted at once.
local function group_limits(key, arg, allowed, now, delay)
  if arg.group == '' or allowed <= 0 then
    return nil
  end
  local call, settings, lock_ms = redis.call, cmsgpack.unpack(arg.group), tonumber(arg.lock_ms)
  local rooms, refillable, held, limits = {}, {}, 0, {}
  local has_delayed, has_promoted = call('EXISTS', key.group_delayed) == 1, false

  local function room(group)
    rooms[group] = rooms[group] or group_room.room_of(key, arg.base, settings, group, now)
    return rooms[group]
  end

  -- How many delayed jobs of a group are before a place: most jobs come after all that are known.
  local function before_of(known, group, place)
    local last = known.last or call('ZREVRANGEBYLEX', key.group_delayed, '(' .. group .. '\255', '[' .. group,
      'LIMIT', 0, 1)[1] or group
    known.count = known.count or call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. group .. '\255')
    known.last = place > last and place or last
    if place > last then
      return known.count
    end
    return call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. place)
  end

  local function hold(id, group, place)
    local known = room(group)
    local score = delay(id, due_of(settings, known, before_of(known, group, place), now, lock_ms))
    call('ZADD', key.group_delayed, 0, place .. score)
    known.count = known.count + 1
    if held == 0 then
      call('SET', key.group_settings, arg.group)
    end
    held, has_delayed = held + 1, true
  end

  -- Whether a job is the next one of its group. A place is reserved for a promoted one.
  local function is_next(known, group, place, is_promoted)
    local free = group_room.free_in(settings, known)
    if free <= 0 then
      return false
    end
    if has_delayed then
      refillable[group] = known
    end
    if is_promoted then
      return true
    end
    if not has_delayed then
      return free > known.promoted
    end
    local earlier, _, by_others = group_queue.first_delayed(key, group, 1, place)
    known.promoted, has_promoted = known.promoted + by_others, has_promoted or by_others > 0
    return free > known.promoted and #earlier == 0
  end

  function limits.admit(may_start, id, rank, timestamp, opts, data)
    local group = group_of(settings.path, opts, data)
    if not group then
      return may_start and 'started' or 'ready'
    end
    local known, place = room(group), group_queue.place_of(group, rank, timestamp, id)
    local is_promoted = has_promoted and call('ZSCORE', key.group_promoted, id)
    local may = is_next(known, group, place, is_promoted)
    if may and not may_start then
      return 'ready'
    end
    if is_promoted then
      call('ZREM', key.group_promoted, id)
      known.promoted = math.max(0, known.promoted - 1)
    end
    if not may then
      hold(id, group, place)
      return 'held'
    end
    if has_delayed then
      call('ZREMRANGEBYLEX', key.group_delayed, '[' .. place, '(' .. place .. '\255')
    end
    count_start(key, settings, group, known, id)
    return 'started'
  end

  function limits.refill()
    local groups = refillable
    refillable = {}
    return group_room.promote(key, arg, settings, groups)
  end

  function limits.may_hold()
    return held < MAX_HELD
  end

  function limits.next_due(due)
    local window_end = settings.max and has_delayed
      and tonumber(call('ZRANGE', key.group_windows, 0, 0, 'WITHSCORES')[2])
    return window_end and due and math.min(window_end, due) or window_end or due
  end

  local ended = drop_windows(key, now)
  if has_delayed then
    for _, group in ipairs(ended) do
      refillable[group] = room(group)
    end
    limits.refill()
  else
    call('DEL', key.group_promoted, key.group_settings)
  end
  has_promoted = call('EXISTS', key.group_promoted) == 1
  return limits
end
