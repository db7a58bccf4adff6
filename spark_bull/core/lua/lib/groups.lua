-- The groups of jobs.
-- @include lib: values(json_of)
-- @include {dialect}/lib: waiting(waits)

-- What a group has of its own: {name, max, duration_ms, concurrency, paused, rests_until}, all optional; {} for nothing.
-- Also returns its member of the ZSET `group_own`: its digits and this record, packed. All members have one score, so
-- that they are read in the order of the digits.
local function group_record(key, group)
  local member = call('ZRANGEBYLEX', key.group_own, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
  return member and cmsgpack.unpack(string.sub(member, #group + 1)) or {}, member
end

-- Replaces what a group has of its own; see group_record.
local function save(key, group, own)
  local _, member = group_record(key, group)
  if member then
    call('ZREM', key.group_own, member)
  end
  if own.max or own.concurrency or own.paused or own.rests_until then
    call('ZADD', key.group_own, 0, group .. cmsgpack.pack(own))
  end
end

local group_own = {of = group_record, save = save}

-- Groups whose delayed jobs may start at a time that no counter has: after a rest, or after a pause or a limit was
-- removed. They are in the ZSET `group_checks`: group -> when a claim promotes delayed jobs of it again.

-- Groups that one call checks, and after how long it checks them again while they have delayed jobs, ms.
local MAX_DUE, AGAIN_MS = 100, 30000

-- Removes the groups that are due, and rests that are over; returns the groups.
local function take_due(key, now)
  local due = call('ZRANGEBYSCORE', key.group_checks, '-inf', now, 'LIMIT', 0, MAX_DUE)
  for _, group in ipairs(due) do
    call('ZREM', key.group_checks, group)
    local own = group_own.of(key, group)
    if own.rests_until and own.rests_until <= now then
      own.rests_until = nil
      group_own.save(key, group, own)
    end
  end
  return due
end

-- Plans the next check of a group, if it rests, or has delayed jobs and is not paused.
local function plan_next(key, group, now)
  local own = group_own.of(key, group)
  local is_delayed = call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. group .. '\255') > 0
  local at = own.rests_until or is_delayed and not own.paused and now + AGAIN_MS
  if at then
    call('ZADD', key.group_checks, at, group)
  else
    call('ZREM', key.group_checks, group)
  end
end

local group_checks = {take_due = take_due, plan_next = plan_next}

-- The groups that this call has met: name -> digits.
local digits_of = {}

-- The 16 digits that stand for the name of a group in keys: a hash, which is also an integer that the score of a ZSET
-- holds exactly.
local function group_digits(name)
  if not digits_of[name] then
    digits_of[name] = string.format('%016.0f', tonumber(string.sub(redis.sha1hex(name), 1, 13), 16))
  end
  return digits_of[name]
end

-- The value at a path of names in a JSON object, as a text; nil for none, and for one that is no text or number.
local function value_at(text, path)
  local value = json_of(text)
  for _, name in ipairs(path) do
    if type(value) ~= 'table' then
      return nil
    end
    value = value[name]
  end
  if type(value) == 'number' then
    return string.format('%.17g', value)
  end
  return type(value) == 'string' and value or nil
end

-- The name of the group of a job, `opts.group.id` or else the value at `path` in its payload; nil for none.
local function name_of(path, opts, data)
  local group = opts and string.find(opts, '"group"', 1, true) and value_at(opts, {'group', 'id'})
  return group or data and value_at(data, path)
end

-- The same of a job by its key, and the length of its payload.
local function name_of_job(path, job_key)
  local row = redis.pcall('HMGET', job_key, 'opts', 'data')
  if row.err then
    return nil, 0
  end
  return name_of(path, row[1], row[2]), #(row[2] or '')
end

local group_name = {of = name_of, of_job = name_of_job}

-- The delayed and promoted jobs of a group.

-- The jobs that are delayed because of the limits of their group are in the ZSET `group_delayed`, all with one score. A
-- member is the group, the job's rank, creation time and length of its id (so that members are sorted by all of them),
-- then its id, a zero byte, and its score in `delayed`.
local PLACE = '^' .. string.rep('.', 50) .. '(.*)%z([^%z]*)$'
-- The rank of jobs that come after all others of their group.
local LAST_RANK = 9007199254740992

-- The start of the member of a job. `rank`: jobs of a lower one come first.
local function place_of(group, rank, timestamp, id)
  local created = math.max(0, math.min(tonumber(timestamp) or 0, 999999999999999))
  local order = math.max(0, math.min(rank, LAST_RANK))
  return string.format('%s%016.0f%015.0f%03.0f', group, order, created, math.min(#id, 999)) .. id .. '\0'
end

-- The id of the job of a member, and its score in `delayed`.
local function job_of(member)
  return string.match(member, PLACE)
end

local group_place = {LAST_RANK = LAST_RANK, of = place_of, job_of = job_of}

-- Jobs of groups that wait, and have a place: promoted ones, and those that wait again while others of their group are
-- delayed. They are in the ZSET `group_promoted`: job id -> number of its group.
local function note_promoted(key, group, ids)
  for _, id in ipairs(ids) do
    call('ZADD', key.group_promoted, group, id)
  end
end

-- Whether a job that waits again after it has left its group, {job id -> group}, comes behind the next jobs, and not at
-- the end: delayed jobs of its group would overtake it.
local function comes_near(key, left, id)
  return left[id] and call('EXISTS', key.group_delayed) == 1
end

-- Reserves a place for jobs `ids` that wait again after they have left their groups, {job id -> group}.
local function keep_places(key, left, ids)
  if next(left) and call('EXISTS', key.group_delayed) == 1 then
    for _, id in ipairs(ids) do
      if left[id] then
        note_promoted(key, left[id], {id})
      end
    end
  end
end

local group_places = {note_promoted = note_promoted, comes_near = comes_near, keep = keep_places}

-- Maximum number of members that one search reads, and of jobs that it looks up among the waiting ones.
local MAX_EXAMINED = 1000
local MAX_LOOKED_UP = 10

-- The number of promoted jobs of a group that have not started. When they fill all `places`, members that no longer
-- wait are removed: others have started or deleted these jobs.
local function promoted_of(key, group, places)
  local number = tonumber(group)
  local count = call('ZCOUNT', key.group_promoted, number, number)
  if count > 0 and count >= places then
    for _, id in ipairs(call('ZRANGEBYSCORE', key.group_promoted, number, number, 'LIMIT', 0, MAX_LOOKED_UP)) do
      if not waits(key, id) then
        call('ZREM', key.group_promoted, id)
        count = count - 1
      end
    end
  end
  return count
end

-- Removes the members of jobs that have left `delayed`, or were delayed for another reason since. Jobs that others have
-- promoted, and that wait, count as promoted; returns how many there are.
local function remove_outdated(key, group, outdated, looked_up)
  local waiting = {}
  call('ZREM', key.group_delayed, unpack(outdated))
  for i = 1, math.min(#outdated, MAX_LOOKED_UP - looked_up) do
    local id = group_place.job_of(outdated[i])
    if not call('ZSCORE', key.group_promoted, id) and waits(key, id) then
      waiting[#waiting + 1] = id
    end
  end
  group_places.note_promoted(key, group, waiting)
  return #waiting
end

-- Ids and members of the first delayed jobs of a group, `count` at most, before the place `before` if given; and how
-- many jobs were found that others have promoted.
local function first_delayed(key, group, count, before)
  local ids, members, promoted, looked_up = {}, {}, 0, 0
  local examined, batch = 0, math.min(count, MAX_EXAMINED)
  while #ids < count and examined < MAX_EXAMINED do
    local found = call('ZRANGEBYLEX', key.group_delayed, '[' .. group, '(' .. (before or group .. '\255'),
      'LIMIT', #ids, batch)
    if #found == 0 then
      break
    end
    local found_ids, outdated = {}, {}
    for i, member in ipairs(found) do
      found_ids[i] = group_place.job_of(member)
    end
    for i, score in ipairs(call('ZMSCORE', key.delayed, unpack(found_ids))) do
      if score ~= select(2, group_place.job_of(found[i])) then
        outdated[#outdated + 1] = found[i]
      elseif #ids < count then
        ids[#ids + 1], members[#members + 1] = found_ids[i], found[i]
      end
    end
    if #outdated > 0 then
      promoted = promoted + remove_outdated(key, group, outdated, looked_up)
      looked_up = math.min(looked_up + #outdated, MAX_LOOKED_UP)
    end
    examined, batch = examined + #found, 200
  end
  return ids, members, promoted
end

local group_queue = {promoted_of = promoted_of, first_delayed = first_delayed}
