-- How many jobs of a group may start.
-- @include lib: group_queue(group_places group_queue) groups(group_checks group_name group_own)
-- @include {dialect}/lib: promote(promote_group)

-- Jobs that one call promotes, over all groups, but one of each group at least.
local MAX_PROMOTED = 200

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
    local window_end = tonumber(redis.call('ZSCORE', key.group_windows, group))
    if window_end and window_end > now then
      room.window_end, room.started = window_end, tonumber(redis.call('HGET', key.group_started, group)) or 0
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
        redis.call('ZREM', key.group_delayed, unpack(taken))
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
  if not next(left) or redis.call('EXISTS', key.group_delayed) == 0 then
    return
  end
  local packed = arg.group ~= '' and arg.group or redis.call('GET', key.group_settings)
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
      local own, settings = group_own.of(key, group), redis.call('GET', key.group_settings)
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
