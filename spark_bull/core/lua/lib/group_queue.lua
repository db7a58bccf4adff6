-- The delayed and promoted jobs of a group.
-- @include {dialect}/lib: waiting(waits)

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
    redis.call('ZADD', key.group_promoted, group, id)
  end
end

-- Whether a job that waits again after it has left its group, {job id -> group}, comes behind the next jobs, and not at
-- the end: delayed jobs of its group would overtake it.
local function comes_near(key, left, id)
  return left[id] and redis.call('EXISTS', key.group_delayed) == 1
end

-- Reserves a place for jobs `ids` that wait again after they have left their groups, {job id -> group}.
local function keep_places(key, left, ids)
  if next(left) and redis.call('EXISTS', key.group_delayed) == 1 then
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
  local call, number = redis.call, tonumber(group)
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
  redis.call('ZREM', key.group_delayed, unpack(outdated))
  for i = 1, math.min(#outdated, MAX_LOOKED_UP - looked_up) do
    local id = group_place.job_of(outdated[i])
    if not redis.call('ZSCORE', key.group_promoted, id) and waits(key, id) then
      waiting[#waiting + 1] = id
    end
  end
  group_places.note_promoted(key, group, waiting)
  return #waiting
end

-- Ids and members of the first delayed jobs of a group, `count` at most, before the place `before` if given; and how
-- many jobs were found that others have promoted.
local function first_delayed(key, group, count, before)
  local call, ids, members, promoted, looked_up = redis.call, {}, {}, 0, 0
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
