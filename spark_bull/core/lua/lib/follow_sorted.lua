-- @include lib: results(result_entries)

-- Members of a ZSET that one step examines.
local STEP = 500
-- Maximum number of seen jobs that one step deletes.
local MAX_FORGOTTEN = 10000
local SCAN_FIELDS = {'floor', 'walk', 'at', 'below', 'count', 'quiet'}

-- The progress of a reader through the ZSET of a finished state, whose scores are finish times by the workers' clocks.
-- Jobs of the look-back window are recorded in `seen`. Below `floor` no job can be added any more, and all are known.
-- Between `floor` and the start of the window, a walk examines each job once more and raises `floor`; within the
-- window, walks go through the time slices whose number of jobs has changed. A walk goes from `at` to `below`, in as
-- many calls as needed; `at` is '(' and a time when the walk has passed all jobs of that time. `quiet`: jobs found are
-- not results, as they finished before the reader started.
local function scan_of(key, state, clock)
  local names = {}
  for i, name in ipairs(SCAN_FIELDS) do
    names[i] = state .. ':' .. name
  end
  local scan = {state = state, set = key[state], seen = key['seen_' .. state], slices = key['slices_' .. state]}
  for i, value in ipairs(redis.call('HMGET', key.track, unpack(names))) do
    scan[SCAN_FIELDS[i]] = value
  end
  scan.clock = clock
  scan.horizon = clock['until_' .. state]
  return scan
end

local function save_scan(key, scan)
  local fields, gone = {}, {}
  for _, name in ipairs(SCAN_FIELDS) do
    if scan[name] then
      fields[#fields + 1], fields[#fields + 2] = scan.state .. ':' .. name, scan[name]
    else
      gone[#gone + 1] = scan.state .. ':' .. name
    end
  end
  redis.call('HSET', key.track, unpack(fields))
  if #gone > 0 then
    redis.call('HDEL', key.track, unpack(gone))
  end
end

-- The jobs that were not seen at these times.
local function unseen(scan, ids, times)
  local call = redis.call
  if #ids == 0 or call('ZCOUNT', scan.seen, times[1], times[#times]) == 0 then
    return ids, times
  end
  local known, new_ids, new_times, count = call('ZMSCORE', scan.seen, unpack(ids)), {}, {}, 0
  for i, time in ipairs(times) do
    if known[i] ~= time then
      count = count + 1
      new_ids[count], new_times[count] = ids[i], time
    end
  end
  return new_ids, new_times
end

-- The upper bound of the times before `at`.
local function bound_before(at)
  return string.match(at, '^%((.*)$') or '(' .. at
end

-- The unknown jobs among the next STEP ones from `at` on, or among more where more have the same time.
-- Returns their ids and times, where to continue, whether the walk has ended, and the number of jobs examined.
local function step(scan)
  local call = redis.call
  local rank, examined = call('ZCOUNT', scan.set, '-inf', bound_before(scan.at)), 0
  local stop = call('ZCOUNT', scan.set, '-inf', '(' .. scan.below)
  while true do
    local ids, times, count, at = {}, {}, 0, scan.at
    local function take(first, last)
      local members = last >= first and call('ZRANGE', scan.set, first, last, 'WITHSCORES') or {}
      for i = 1, #members, 2 do
        count = count + 1
        ids[count], times[count] = members[i], members[i + 1]
      end
    end
    take(rank, math.min(rank + STEP, stop) - 1)
    local ended = count < STEP
    if count > 0 then
      -- The others of the last time, unless they are too many.
      local last = times[count]
      local left = call('ZCOUNT', scan.set, '-inf', last) - rank - count
      if left > 0 and left <= STEP then
        take(rank + STEP, rank + STEP + left - 1)
      end
      at = left <= STEP and '(' .. last or last
    end
    local new_ids, new_times = unseen(scan, ids, times)
    examined = examined + count
    if ended or #new_ids > 0 or at ~= scan.at then
      return new_ids, new_times, at, ended, examined
    end
    rank = rank + STEP
  end
end

-- Records jobs found before their events are read.
local function save_delivered_early(key, scan, ids, times)
  local count, since = 0, scan.clock.early_since
  for i, job_id in ipairs(ids) do
    if tonumber(times[i]) >= since then
      redis.call('HSET', scan.clock.delivered_early, result_entries.early_field(scan.state, job_id), times[i])
      count = count + 1
    end
  end
  if count > 0 then
    redis.call('HINCRBY', key.track, 'late', count)
  end
end

-- Records the jobs that a later scan can meet again. `ids` are in the order of their times: while the walk closes, only
-- the last ones, with the time `at` at which it continues, can be met again; else all.
local function remember(key, scan, ids, times, at)
  if scan.clock.delivered_early and not scan.quiet then
    save_delivered_early(key, scan, ids, times)
  end
  local first, pairs_of = 1, {}
  if scan.walk == 'closing' then
    first = #ids + 1
    while first > 1 and times[first - 1] == at do
      first = first - 1
    end
  end
  for i = first, #ids do
    local place = 2 * (i - first)
    pairs_of[place + 1], pairs_of[place + 2] = times[i], ids[i]
  end
  if #pairs_of > 0 then
    redis.call('ZADD', scan.seen, unpack(pairs_of))
  end
end

-- Deletes seen jobs before `at`, MAX_FORGOTTEN at most; others are harmless, and are deleted by later calls.
local function forget_seen(scan, at)
  local count = math.min(redis.call('ZCOUNT', scan.seen, '-inf', bound_before(at)), MAX_FORGOTTEN)
  if count > 0 then
    redis.call('ZREMRANGEBYRANK', scan.seen, 0, count - 1)
  end
end

-- Sets `floor`, and deletes what was recorded about jobs below it.
local function raise_floor(scan, floor)
  local call, gone = redis.call, {}
  scan.floor = floor
  forget_seen(scan, floor)
  for _, number in ipairs(call('HKEYS', scan.slices)) do
    if (tonumber(number) + 1) * scan.clock.slice_ms <= tonumber(floor) then
      gone[#gone + 1] = number
    end
  end
  if #gone > 0 then
    call('HDEL', scan.slices, unpack(gone))
  end
end

-- Starts a walk through the next slice whose number of jobs has changed, if there is one.
local function next_slice(scan)
  local call, clock = redis.call, scan.clock
  local counts, known = {}, call('HGETALL', scan.slices)
  for i = 1, #known, 2 do
    counts[known[i]] = tonumber(known[i + 1])
  end
  local floor = tonumber(scan.floor)
  local first = math.floor(floor / clock.slice_ms)
  local last = math.max(first, math.floor((clock.now + clock.lookback_ms) / clock.slice_ms))
  for number = first, last do
    local from = math.max(number * clock.slice_ms, floor)
    local below = number == last and '+inf' or '(' .. (number + 1) * clock.slice_ms
    local count = call('ZCOUNT', scan.set, from, below)
    if count ~= (counts[number .. ''] or 0) then
      if count ~= call('ZCOUNT', scan.seen, from, below) then
        scan.walk, scan.at, scan.count = number .. '', from .. '', count .. ''
        scan.below = number == last and '+inf' or ((number + 1) * clock.slice_ms) .. ''
        return true
      end
      call('HSET', scan.slices, number, count)
    end
  end
  return false
end

-- Starts the next walk; returns false when there is none.
local function begin_walk(scan)
  local clock = scan.clock
  local closed = math.floor((clock.now - clock.lookback_ms) / clock.slice_ms) * clock.slice_ms
  local horizon = tonumber(scan.horizon)
  if horizon then
    closed = math.min(closed, horizon + 1)
  end
  if scan.floor == '-inf' or tonumber(scan.floor) < closed then
    if redis.call('ZCOUNT', scan.set, scan.floor, '(' .. closed) > 0 then
      scan.walk, scan.at, scan.below = 'closing', scan.floor, closed .. ''
      return true
    end
    raise_floor(scan, closed .. '')
  end
  if not horizon then
    return next_slice(scan)
  end
  if horizon < tonumber(scan.floor) then
    return false
  end
  scan.walk, scan.at, scan.below = 'whole', scan.floor, (horizon + 1) .. ''
  return true
end

local function end_walk(scan)
  if scan.walk == 'closing' then
    raise_floor(scan, scan.below)
  elseif scan.walk ~= 'whole' then
    redis.call('HSET', scan.slices, scan.walk, scan.count)
  end
  scan.walk, scan.at, scan.below, scan.count = nil, nil, nil, nil
end

-- Examines about `most` finished jobs; returns whether the scan is incomplete.
local function follow_sorted(key, arg, state, clock, most)
  local scan = scan_of(key, state, clock)
  local more = true
  while more and most > 0 do
    more = scan.walk or begin_walk(scan)
    if more then
      local whole = scan.walk == 'whole'
      local ids, times, at, ended, examined = step(scan)
      if #ids > 0 then
        if not scan.quiet then
          redis.call('RPUSH', key.ledger, unpack(result_entries.found(arg.base, scan.state, ids, times)))
        end
        remember(key, scan, ids, times, at)
      end
      scan.at = at
      if scan.walk == 'closing' then
        forget_seen(scan, at)
      end
      if ended then
        end_walk(scan)
        more = not whole
      end
      most = most - examined
    end
  end
  if not more then
    scan.quiet = nil
  end
  save_scan(key, scan)
  return more and true or false
end
