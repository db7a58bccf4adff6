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
