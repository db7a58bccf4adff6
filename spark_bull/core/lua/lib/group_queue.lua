-- @include lib: group_place group_places
-- @include {dialect}/lib: waits

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
