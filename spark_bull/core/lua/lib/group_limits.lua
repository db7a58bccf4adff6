-- The limits of groups.
-- @include lib: group_limits(group_room)
-- @include lib: groups(group_checks group_digits group_name group_own group_place group_places group_queue)
-- @include {dialect}/lib: waiting(promote_group)

-- Jobs that one call promotes, over all groups, but one of each group at least.
local MAX_PROMOTED = 200

-- The number of running jobs of a group. Where it has reached the limit, jobs without a lock are removed: their worker
-- has died.
local function running_of(key, base, group, limit)
  local number = tonumber(group)
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

-- How many further jobs of a group may start.
local function free_in(room)
  if room.rests_until then
    return 0
  end
  return math.min((room.concurrency or math.huge) - room.running, (room.max or math.huge) - room.started)
end

-- What a group may start, as this call knows it: {concurrency, max, duration_ms, rests_until, running, started,
-- window_end, promoted}. Limits that the group has not of its own are those in `settings`. `rests_until`: without an end
-- for a paused group, nil for one that does not rest. `promoted`: jobs that wait for places that are reserved for them.
local function room_of(key, base, settings, group, now)
  local own = group_own.of(key, group)
  local room = {
    concurrency = own.concurrency or settings.concurrency,
    max = own.max or settings.max,
    duration_ms = own.max and own.duration_ms or settings.duration_ms,
    rests_until = own.paused and math.huge or (own.rests_until or 0) > now and own.rests_until or nil,
    running = 0,
    started = 0,
    promoted = 0,
  }
  if room.concurrency then
    room.running = running_of(key, base, group, room.concurrency)
  end
  if room.max then
    local window_end = tonumber(call('ZSCORE', key.group_windows, group))
    if window_end and window_end > now then
      room.window_end, room.started = window_end, tonumber(call('HGET', key.group_started, group)) or 0
    else
      room.window_end = now + room.duration_ms
    end
  end
  local free = free_in(room)
  if free > 0 then
    room.promoted = group_queue.promoted_of(key, group, free)
  end
  return room
end

-- Promotes the first delayed jobs of these groups {group -> room} for which there is a place. Returns whether
-- there were any.
local function promote_of_groups(key, arg, rooms)
  local promoted, groups = {}, 0
  for _ in pairs(rooms) do
    groups = groups + 1
  end
  -- Claims and settlements of these jobs promote further ones.
  local share = math.max(1, math.floor(MAX_PROMOTED / math.max(1, groups)))
  for group, room in pairs(rooms) do
    local places = math.min(free_in(room) - room.promoted, share)
    if places > 0 then
      local ids, members, by_others = group_queue.first_delayed(key, group, places)
      local ready, taken = {}, {}
      for i = 1, math.min(#ids, places - by_others) do
        ready[i], taken[i] = ids[i], members[i]
        promoted[#promoted + 1] = ids[i]
      end
      if #ready > 0 then
        call('ZREM', key.group_delayed, unpack(taken))
        group_places.note_promoted(key, group, ready)
      end
      room.promoted = room.promoted + by_others + #ready
    end
  end
  if #promoted > 0 then
    promote_group(key, arg, promoted)
  end
  return #promoted > 0
end

local group_room = {free_in = free_in, room_of = room_of, promote = promote_of_groups}

-- Promotes delayed jobs of groups that have places again. `left`: {job id -> group} of the jobs that have left their
-- groups; the ones that wait again (the list `waiting`) keep their places. The limits are given by the call, else by
-- the call that delayed jobs last.
local function refill_groups(key, arg, now, left, waiting)
  if call('EXISTS', key.group_delayed) == 0 then
    return
  end
  local packed = arg.group ~= '' and arg.group or call('GET', key.group_settings)
  group_places.keep(key, left, waiting)
  if packed then
    local settings, rooms = cmsgpack.unpack(packed), {}
    for _, group in pairs(left) do
      rooms[group] = rooms[group] or group_room.room_of(key, arg.base, settings, group, now)
    end
    group_room.promote(key, arg, rooms)
  end
end

-- Lets groups rest whose jobs have asked for it, `outcomes.rested`: {id, ms}. These jobs are added to the returned ones;
-- jobs in no group to the delayed ones. `left`: {job id -> group} of the jobs that have left their groups.
local function rest_groups(key, arg, outcomes, left, now)
  for _, job in ipairs(outcomes.rested) do
    local group, rests_until = left[job.id], now + job.ms
    if group then
      local own, settings = group_own.of(key, group), call('GET', key.group_settings)
      own.rests_until = math.max(own.rests_until or 0, rests_until)
      own.name = own.name or settings and group_name.of_job(cmsgpack.unpack(settings).path, arg.base .. job.id) or nil
      group_own.save(key, group, own)
      group_checks.plan_next(key, group, now)
      table.insert(outcomes.returned, job.id)
    else
      table.insert(outcomes.delayed, {id = job.id, ['until'] = rests_until})
    end
  end
end

-- Jobs that one call moves to `delayed` at most, and that it reads at a time.
local MAX_HELD = 150
-- Groups whose jobs are promoted by one call, as their windows have ended.
local MAX_ENDED = 100
-- When jobs of a paused group are due, ms: no worker promotes them meanwhile, and resuming the group promotes them.
local PAUSE_MS = 31536000000

-- Deletes the counters of windows that have ended; returns their groups.
local function drop_windows(key, now)
  local over = call('ZRANGEBYSCORE', key.group_windows, '-inf', now, 'LIMIT', 0, MAX_ENDED)
  if #over > 0 then
    call('ZREM', key.group_windows, unpack(over))
    call('HDEL', key.group_started, unpack(over))
  end
  return over
end

-- When a job is due that has `before` delayed jobs of its group before it: after the rest of the group, in the first
-- window with a place for it, if there is a rate limit. A running job that ends promotes the next one; jobs that wait for
-- that are due when a job of a dead worker has lost its lock, as many at a time as a group may run, ten at least.
local function due_of(room, before, now, lock_ms)
  if room.rests_until == math.huge then
    return now + PAUSE_MS
  end
  local from, ahead = room.rests_until or now, room.promoted + before
  local due = from
  if room.concurrency and room.running + ahead >= room.concurrency or not room.max then
    due = from + lock_ms * (1 + math.floor(before / math.max(10, room.concurrency or 0)))
  end
  if room.max then
    local late = room.started + ahead - room.max
    if late >= 0 then
      due = math.max(due, room.window_end + math.floor(late / room.max) * room.duration_ms)
    end
  end
  -- At least a few ms, so that a job is not moved back and forth without a pause.
  return math.max(due, now + 5)
end

local function count_start(key, group, room, id)
  -- Also without a limit, which the group may get while the job runs.
  room.running = room.running + 1
  call('ZADD', key.group_active, group, id)
  if room.max then
    room.started = room.started + 1
    call('HSET', key.group_started, group, room.started)
    if room.started == 1 then
      call('ZADD', key.group_windows, room.window_end, group)
    end
  end
end

-- The limits of the groups of jobs, for a call with `arg.group` that is to claim some. `admit(may_start, id, rank,
-- timestamp, opts, data)` returns 'started' (the job was counted), 'held' (it was delayed by `delay(id, eta)`, which
-- returns its score, as it must wait) or, unless `may_start`, 'ready'. `refill()` promotes delayed jobs of groups in which
-- jobs may start, and returns whether there were any. `may_hold()`: whether the call may delay further jobs.
-- `next_due(due)`: the earlier one of `due` and the time at which `refill` can promote jobs again, as a window or a rest
-- ends. The first jobs of groups whose window or rest has ended are promoted at once. The settings are kept: settling
-- calls that have none read them, and the groups of a queue that has some can get limits.
local function group_limits(key, arg, now, delay)
  local settings, lock_ms = cmsgpack.unpack(arg.group), tonumber(arg.lock_ms)
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
    local score = delay(id, due_of(known, before_of(known, group, place), now, lock_ms))
    call('ZADD', key.group_delayed, 0, place .. score)
    known.count = known.count + 1
    held, has_delayed = held + 1, true
  end

  -- Whether a job is the next one of its group. A place is reserved for a promoted one.
  local function is_next(known, group, place, is_promoted)
    local free = group_room.free_in(known)
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
    local name = group_name.of(settings.path, opts, data)
    if not name then
      return may_start and 'started' or 'ready'
    end
    local group = group_digits(name)
    local known, place = room(group), group_place.of(group, rank, timestamp, id)
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
    count_start(key, group, known, id)
    return 'started'
  end

  function limits.refill()
    local groups = refillable
    refillable = {}
    return group_room.promote(key, arg, groups)
  end

  function limits.may_hold()
    return held < MAX_HELD
  end

  function limits.next_due(due)
    for _, times in ipairs(has_delayed and {key.group_windows, key.group_checks} or {}) do
      local first = tonumber(call('ZRANGE', times, 0, 0, 'WITHSCORES')[2])
      due = first and due and math.min(first, due) or first or due
    end
    return due
  end

  if call('GET', key.group_settings) ~= arg.group then
    call('SET', key.group_settings, arg.group)
  end
  local ended, checked = drop_windows(key, now), group_checks.take_due(key, now)
  if has_delayed then
    for _, groups in ipairs({ended, checked}) do
      for _, group in ipairs(groups) do
        refillable[group] = room(group)
      end
    end
    limits.refill()
  else
    call('DEL', key.group_promoted)
  end
  for _, group in ipairs(checked) do
    group_checks.plan_next(key, group, now)
  end
  has_promoted = call('EXISTS', key.group_promoted) == 1
  return limits
end
