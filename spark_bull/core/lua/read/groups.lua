-- Reads groups in the order of their digits from behind `position` on, `limit` at most: those with running or delayed
-- jobs, or with something of their own. The name of a group that has nothing of its own is read from one of its jobs.
-- @returns {the last group, or '' after the last one of all; {name, waiting, active, packed group_record}...}
-- @include lib: groups(group_name group_place group_record) values(time_ms)

-- Jobs of a group that are read to find its name, and bytes of payloads after which a call reads no more groups.
local MAX_SAMPLES, MOST_BYTES = 3, 1048576

local now, bytes = time_ms(), 0
local packed = call('GET', key.group_settings)
local path = packed and cmsgpack.unpack(packed).path

-- The first group behind another one, nil at the end.
local function next_group(group)
  local first
  local function consider(digits)
    first = digits and (not first or digits < first) and digits or first
  end
  for _, members in ipairs({key.group_delayed, key.group_own}) do
    local from = group == '' and '-' or '(' .. group .. '\255'
    local member = call('ZRANGEBYLEX', members, from, '+', 'LIMIT', 0, 1)[1]
    consider(member and string.sub(member, 1, 16))
  end
  for _, jobs in ipairs({key.group_active, key.group_promoted}) do
    local found = call('ZRANGEBYSCORE', jobs, group == '' and '-inf' or '(' .. group, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    consider(found[2] and string.format('%016.0f', tonumber(found[2])))
  end
  return first
end

local function name_of_jobs(group)
  local ids = {}
  for _, jobs in ipairs({key.group_active, key.group_promoted}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', jobs, group, group, 'LIMIT', 0, MAX_SAMPLES)) do
      ids[#ids + 1] = id
    end
  end
  for _, member in ipairs(call('ZRANGEBYLEX', key.group_delayed, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0,
    MAX_SAMPLES)) do
    ids[#ids + 1] = group_place.job_of(member)
  end
  for _, id in ipairs(ids) do
    local name, length = group_name.of_job(path, arg.base .. id)
    bytes = bytes + length
    if name then
      return name
    end
  end
end

local reply, group = {''}, arg.position
for _ = 1, tonumber(arg.limit) do
  if bytes > MOST_BYTES then
    break
  end
  group = next_group(group)
  if not group then
    return reply
  end
  local own = group_record(key, group)
  if own.rests_until and own.rests_until <= now then
    own.rests_until = nil
  end
  local active = call('ZCOUNT', key.group_active, group, group)
  local waiting = call('ZCOUNT', key.group_promoted, group, group)
    + call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. group .. '\255')
  local is_shown = waiting + active > 0 or own.max or own.concurrency or own.paused or own.rests_until
  local name = is_shown and (own.name or path and name_of_jobs(group))
  if name then
    reply[#reply + 1] = {name, waiting, active, cmsgpack.pack(own)}
  end
  reply[1] = group
end
return reply
