-- @include lib/result_entry

-- How many members of a ZSET one step looks at.
local STEP = 500
-- How many jobs that were seen one step forgets.
local MAX_FORGOTTEN = 10000
local WAY = {'floor', 'walk', 'at', 'below', 'count', 'quiet'}

-- Follows the ZSET of a finished state, whose scores are the times of finishing by the workers' clocks.
-- Jobs from the look-back window on are in `seen`. Below `floor` nobody can arrive any more, all are known. Between
-- `floor` and what has left the window since, a walk looks at each job once more, and raises `floor`; within the window,
-- walks look through the slices of time in which the number of jobs has changed. A walk goes from `at` to `below`, in as
-- many calls as it takes. `quiet`: what is found is no result, as it was there before the reader.
local function way_of(key, state, clock)
  local names = {}
  for i, name in ipairs(WAY) do
    names[i] = state .. ':' .. name
  end
  local way = {state = state, set = key[state], seen = key['seen_' .. state], slices = key['slices_' .. state]}
  for i, value in ipairs(redis.call('HMGET', key.track, unpack(names))) do
    way[WAY[i]] = value
  end
  way.clock = clock
  way.horizon = clock['until_' .. state]
  return way
end

local function save_way(key, way)
  local fields, gone = {}, {}
  for _, name in ipairs(WAY) do
    if way[name] then
      fields[#fields + 1], fields[#fields + 2] = way.state .. ':' .. name, way[name]
    else
      gone[#gone + 1] = way.state .. ':' .. name
    end
  end
  redis.call('HSET', key.track, unpack(fields))
  if #gone > 0 then
    redis.call('HDEL', key.track, unpack(gone))
  end
end

-- The jobs from `at` on that are not known yet, out of the next STEP, or more where one moment has more.
-- Returns their ids and times, the time to go on from, whether the walk is at its end, and how many were looked at.
local function step(way)
  local call, below = redis.call, way.below == '+inf' and math.huge or tonumber(way.below)
  local rank, looked = call('ZCOUNT', way.set, '-inf', '(' .. way.at), 0
  while true do
    local members = call('ZRANGE', way.set, rank, rank + STEP - 1, 'WITHSCORES')
    local ids, times = {}, {}
    for i = 1, #members, 2 do
      if tonumber(members[i + 1]) >= below then
        break
      end
      ids[#ids + 1], times[#times + 1] = members[i], members[i + 1]
    end
    local new_ids, new_times = {}, {}
    local known = #ids > 0 and call('ZMSCORE', way.seen, unpack(ids))
    for i = 1, #ids do
      if known[i] ~= times[i] then
        new_ids[#new_ids + 1], new_times[#new_times + 1] = ids[i], times[i]
      end
    end
    looked = looked + #ids
    local last = times[#times] or way.at
    if #ids < STEP or #new_ids > 0 or last ~= way.at then
      return new_ids, new_times, last, #ids < STEP, looked
    end
    rank = rank + STEP
  end
end

local function write_down(key, arg, way, ids, times)
  local entries = {}
  for i, job_id in ipairs(ids) do
    entries[i] = found_entry(arg.base, way.state, job_id, times[i])
  end
  redis.call('RPUSH', key.ledger, unpack(entries))
end

-- Remembers jobs for as long as they could be found again: those of the window, and those of the moment at which the
-- walk goes on.
local function remember(key, way, ids, times, last)
  local pairs_of, clock = {}, way.clock
  for i, job_id in ipairs(ids) do
    if clock.told and not way.quiet and tonumber(times[i]) >= clock.told_since then
      redis.call('HSET', clock.told, told_field(way.state, job_id), times[i])
      redis.call('HINCRBY', key.track, 'late', 1)
    end
    if way.walk ~= 'closing' or times[i] == last then
      pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = times[i], job_id
    end
  end
  if #pairs_of > 0 then
    redis.call('ZADD', way.seen, unpack(pairs_of))
  end
end

-- Forgets jobs seen below a time, so many at once; what is left of them does no harm, and goes next time.
local function forget_seen(way, time)
  local count = math.min(redis.call('ZCOUNT', way.seen, '-inf', '(' .. time), MAX_FORGOTTEN)
  if count > 0 then
    redis.call('ZREMRANGEBYRANK', way.seen, 0, count - 1)
  end
end

-- Everything below is known: what was kept to know it by can go.
local function raise_floor(way, floor)
  local call, gone = redis.call, {}
  way.floor = floor
  forget_seen(way, floor)
  for _, number in ipairs(call('HKEYS', way.slices)) do
    if (tonumber(number) + 1) * way.clock.slice_ms <= tonumber(floor) then
      gone[#gone + 1] = number
    end
  end
  if #gone > 0 then
    call('HDEL', way.slices, unpack(gone))
  end
end

-- Begins a walk through the next slice whose number of jobs isn't what it was, if there is one.
local function next_slice(way)
  local call, clock = redis.call, way.clock
  local counts, known = {}, call('HGETALL', way.slices)
  for i = 1, #known, 2 do
    counts[known[i]] = tonumber(known[i + 1])
  end
  local floor = tonumber(way.floor)
  local first = math.floor(floor / clock.slice_ms)
  local last = math.max(first, math.floor((clock.now + clock.lookback_ms) / clock.slice_ms))
  for number = first, last do
    local from = math.max(number * clock.slice_ms, floor)
    local below = number == last and '+inf' or '(' .. (number + 1) * clock.slice_ms
    local count = call('ZCOUNT', way.set, from, below)
    if count ~= (counts[number .. ''] or 0) then
      if count ~= call('ZCOUNT', way.seen, from, below) then
        way.walk, way.at, way.count = number .. '', from .. '', count .. ''
        way.below = number == last and '+inf' or ((number + 1) * clock.slice_ms) .. ''
        return true
      end
      call('HSET', way.slices, number, count)
    end
  end
  return false
end

-- Begins the next walk; returns false when there is nothing to walk for.
local function begin_walk(way)
  local clock = way.clock
  local closed = math.floor((clock.now - clock.lookback_ms) / clock.slice_ms) * clock.slice_ms
  local horizon = tonumber(way.horizon)
  if horizon then
    closed = math.min(closed, horizon + 1)
  end
  if way.floor == '-inf' or tonumber(way.floor) < closed then
    if redis.call('ZCOUNT', way.set, way.floor, '(' .. closed) > 0 then
      way.walk, way.at, way.below = 'closing', way.floor, closed .. ''
      return true
    end
    raise_floor(way, closed .. '')
  end
  if not horizon then
    return next_slice(way)
  end
  if horizon < tonumber(way.floor) then
    return false
  end
  way.walk, way.at, way.below = 'whole', way.floor, (horizon + 1) .. ''
  return true
end

local function end_walk(way)
  if way.walk == 'closing' then
    raise_floor(way, way.below)
  elseif way.walk ~= 'whole' then
    redis.call('HSET', way.slices, way.walk, way.count)
  end
  way.walk, way.at, way.below, way.count = nil, nil, nil, nil
end

-- Looks at about `most` finished jobs; returns whether there are more to be looked at.
local function follow_sorted(key, arg, state, clock, most)
  local way = way_of(key, state, clock)
  local more = true
  while more and most > 0 do
    more = way.walk or begin_walk(way)
    if more then
      local whole = way.walk == 'whole'
      local ids, times, last, ended, looked = step(way)
      if #ids > 0 then
        if not way.quiet then
          write_down(key, arg, way, ids, times)
        end
        remember(key, way, ids, times, last)
      end
      way.at = last
      if way.walk == 'closing' then
        forget_seen(way, last)
      end
      if ended then
        end_walk(way)
        more = not whole
      end
      most = most - looked
    end
  end
  if not more then
    way.quiet = nil
  end
  save_way(key, way)
  return more and true or false
end
