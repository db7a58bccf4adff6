-- The jobs that are delayed because of the limits of their group are in the ZSET `group_delayed`, all with one score. A
-- member is the group, the job's rank, creation time and length of its id (so that members are sorted by all of them),
-- then its id, a zero byte, and its score in `delayed`.
local PLACE = '^' .. string.rep('.', 42) .. '(.*)%z([^%z]*)$'
-- Maximum number of outdated members that one search removes.
local MAX_OUTDATED = 100

-- The start of the member of a job. `rank`: jobs of a lower one come first.
local function place_of(group, rank, timestamp, id)
  local created = math.max(0, math.min(tonumber(timestamp) or 0, 999999999999999))
  return string.format('%s%08.0f%015.0f%03.0f', group, rank, created, math.min(#id, 999)) .. id .. '\0'
end

-- Ids and members of the first delayed jobs of a group, `count` at most, before the place `before` if given. Members of
-- jobs that have left `delayed`, or were delayed for another reason since, are removed.
local function first_delayed(key, group, count, before)
  local call, ids, members, outdated = redis.call, {}, {}, 0
  while #ids < count and outdated < MAX_OUTDATED do
    local found = call('ZRANGEBYLEX', key.group_delayed, '[' .. group, '(' .. (before or group .. '\255'),
      'LIMIT', #ids, math.min(count - #ids, MAX_OUTDATED))
    if #found == 0 then
      break
    end
    for _, member in ipairs(found) do
      local id, score = string.match(member, PLACE)
      if call('ZSCORE', key.delayed, id) == score then
        ids[#ids + 1], members[#members + 1] = id, member
      else
        call('ZREM', key.group_delayed, member)
        outdated = outdated + 1
      end
    end
  end
  return ids, members
end

-- Makes the first delayed jobs of a group the next ones of the queue, `count` at most. `promote(ids)` moves them.
-- Returns how many there were.
local function promote_of_group(key, group, count, promote)
  local ids, members = first_delayed(key, group, count)
  if #ids > 0 then
    redis.call('ZREM', key.group_delayed, unpack(members))
    promote(ids)
  end
  return #ids
end
