-- Reads the next jobs of a LIST or ZSET after a place, from the end that jobs enter at (`entering` is 1) or the other.
-- The place in a ZSET is a score and a member, which need not exist any more; without a score, the first end. The place
-- in a LIST is the member behind which to read: the first one of `anchors` that is among the `window` ids around position
-- `first`; without anchors, `first`. Positions count from the end that is read from. A call reads the jobs of at most
-- `most` ids, or about `most_bytes`.
-- @args fields...
-- @returns msgpack of {found = whether an anchor was found, first = position of members[1], length = of the LIST or
-- ZSET, members = ids that were examined, scores = of the members in a ZSET, ids = of the members that are jobs,
-- values = their fields, job after job}
-- @include lib: jobs(job_fields)

local entering, window, most = arg.entering == '1', tonumber(arg.window), tonumber(arg.most)

-- Compares bytes: `<` depends on the locale of the server.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The number of members before a place in the order of a ZSET, and whether the member is at that place.
local function count_before(score, member)
  local current = call('ZSCORE', key.state, member)
  if current and tonumber(current) == tonumber(score) then
    return call('ZRANK', key.state, member), true
  end
  local low = call('ZCOUNT', key.state, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', key.state, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(call('ZRANGE', key.state, middle, middle)[1], member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, false
end

local function list_range(first, last)
  if entering then
    return call('LRANGE', key.state, first, last)
  end
  local members, reversed = call('LRANGE', key.state, -last - 1, -first - 1), {}
  for i = #members, 1, -1 do
    reversed[#reversed + 1] = members[i]
  end
  return reversed
end

local members, scores, first, length = {}, {}, 0, 0
if arg.kind == 'zset' then
  length = call('ZCARD', key.state)
  if arg.score ~= '' then
    local before, is_there = count_before(arg.score, arg.member)
    first = entering and length - before or before + (is_there and 1 or 0)
  end
  local command = entering and 'ZREVRANGE' or 'ZRANGE'
  local pairs_of = call(command, key.state, first, first + most - 1, 'WITHSCORES')
  for i = 1, #pairs_of, 2 do
    members[#members + 1], scores[#scores + 1] = pairs_of[i], pairs_of[i + 1]
  end
else
  length, first = call('LLEN', key.state), tonumber(arg.first)
  local anchors = cmsgpack.unpack(arg.anchors)
  if #anchors > 0 then
    local start = math.max(0, first - math.floor(window / 2))
    local places = {}
    for i, member in ipairs(list_range(start, start + window - 1)) do
      places[member] = start + i
    end
    local found = nil
    for _, anchor in ipairs(anchors) do
      found = found or places[anchor]
    end
    if not found then
      return cmsgpack.pack({found = false, first = start, length = length})
    end
    first = found
  end
  members = list_range(first, first + most - 1)
end
local jobs, unread = job_fields(arg.base, members, 1, arg.fields, most, tonumber(arg.most_bytes))
for i = #members, unread, -1 do
  members[i], scores[i] = nil, nil
end
return cmsgpack.pack({
  found = true,
  first = first,
  length = length,
  members = members,
  scores = scores,
  ids = jobs.ids,
  values = jobs.values,
})
