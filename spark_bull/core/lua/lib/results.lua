-- The ledger of a reader of results.
-- @include lib: results(result_entries) values(time_ms)

-- The times that `discover` uses: the time of Redis, the look-back window, and the bounds of the scan, '' for none. ms.
local function results_clock(arg)
  return {
    now = time_ms(),
    lookback_ms = tonumber(arg.lookback_ms),
    slice_ms = tonumber(arg.slice_ms),
    until_completed = arg.until_completed,
    until_failed = arg.until_failed,
  }
end

local RESULT_LETTERS = {completed = 'c', failed = 'f'}
local RESULT_STATES = {c = 'completed', f = 'failed', C = 'completed', F = 'failed'}

-- An entry of a ledger of results: 'c1732182000123:17' for job 17, completed at that time, ms, which is its score (''
-- for none). After a capital letter, a packed list follows: {id, time, value or false, 1 if the job was gone when it
-- was found}; `value` is its returnvalue or failedReason.
local function result_entry(state, job_id, time, value, gone)
  local letter = RESULT_LETTERS[state]
  if value or gone then
    return string.upper(letter) .. cmsgpack.pack({job_id, time, value or false, gone and 1 or 0})
  end
  return letter .. time .. ':' .. job_id
end

-- Maximum size of a value in the entry of a job that still exists, bytes.
local MAX_VALUE = 4096

-- The entries of jobs that were found in a finished state, at `times` if known. They keep failedReason, which a retry
-- would delete.
local function found_entries(base, state, ids, times)
  local entries, head = {}, RESULT_LETTERS[state]
  for i, job_id in ipairs(ids) do
    local time = times and times[i] or ''
    local why = state == 'failed' and redis.pcall('HGET', base .. job_id, 'failedReason')
    if type(why) == 'string' and #why <= MAX_VALUE then
      entries[i] = result_entry(state, job_id, time, why)
    else
      entries[i] = head .. time .. ':' .. job_id
    end
  end
  return entries
end

-- The field of `delivered_early` for a job that was found in a ZSET before its event was read.
local function early_field(state, job_id)
  return RESULT_LETTERS[state] .. job_id
end

-- Returns state, job id, time, value or false, whether the job was gone.
local function parsed_entry(entry)
  local letter = string.sub(entry, 1, 1)
  local state = RESULT_STATES[letter]
  if letter == 'c' or letter == 'f' then
    local colon = string.find(entry, ':', 2, true)
    return state, string.sub(entry, colon + 1), string.sub(entry, 2, colon - 1), false, false
  end
  local known = cmsgpack.unpack(string.sub(entry, 2))
  return state, known[1], known[2], known[3], known[4] == 1
end

local result_entries = {
  pack = result_entry,
  MAX_VALUE = MAX_VALUE,
  found = found_entries,
  early_field = early_field,
  parse = parsed_entry,
}

-- Checks that the query owns the ledger, and that no entry before `known_end` is missing, as after a fail-over to a
-- replica that lagged: other finishes would take their positions. Returns the reply of the script if not. When the queue
-- was deleted, jobs may have been missed: that is refused unless `accept_recreated`. `deleted` tells of it, and a lower id
-- counter when another program did it.
local function check_owner(key, arg, on_recreated)
  local track = call('HMGET', key.track, 'owner', 'id', 'base', 'deleted')
  if not track[1] then
    return {'lost'}
  end
  if track[1] ~= arg.owner then
    return {'taken', track[1]}
  end
  local ends = tonumber(track[3]) + call('LLEN', key.ledger)
  if ends < tonumber(arg.known_end) then
    return {'behind', ends}
  end
  local was, is = tonumber(track[2]), tonumber(call('GET', key.id) or 0)
  local deleted = call('GET', key.deleted) or track[4]
  if was > is or deleted ~= track[4] then
    if arg.accept_recreated ~= '1' then
      return {'recreated', was, is}
    end
    on_recreated()
  end
  if was ~= is or deleted ~= track[4] then
    call('HSET', key.track, 'id', is, 'deleted', deleted or '')
  end
end

-- The reply of `discover`: {'ok', position after the last entry, `more`, and in a dialect with events the last one
-- read, and the number of missing jobs}.
local function found_results(key, arg, more, cursor, missing)
  for _, name in ipairs({'ledger', 'track', 'delivered_early', 'seen_completed', 'seen_failed', 'slices_completed',
    'slices_failed'}) do
    if key[name] then
      call('PEXPIRE', key[name], arg.ttl_ms)
    end
  end
  local base = tonumber(call('HGET', key.track, 'base'))
  return {'ok', base + call('LLEN', key.ledger), more, cursor, missing}
end

-- Removes up to `limit` entries before a position from a ledger of results. `unchanged(state, ids, times)` returns for
-- each job whether it has been in that state since that time. Returns {completed = ids, failed = ids} of those, and the
-- new base.
local function archived(key, arg, unchanged)
  local base = tonumber(call('HGET', key.track, 'base') or '')
  local count = base and math.min(tonumber(arg.position) - base, tonumber(arg.limit)) or 0
  if count <= 0 then
    return {completed = {}, failed = {}}, base
  end
  local ids, times = {completed = {}, failed = {}}, {completed = {}, failed = {}}
  local entries = call('LRANGE', key.ledger, 0, count - 1)
  for _, entry in ipairs(entries) do
    local state, job_id, time = result_entries.parse(entry)
    local list = ids[state]
    list[#list + 1], times[state][#list + 1] = job_id, time
  end
  local found = {completed = {}, failed = {}}
  for state, list in pairs(ids) do
    local answers = #list > 0 and unchanged(state, list, times[state]) or {}
    for i, job_id in ipairs(list) do
      if answers[i] then
        found[state][#found[state] + 1] = job_id
      end
    end
  end
  call('LTRIM', key.ledger, #entries, -1)
  return found, call('HINCRBY', key.track, 'base', #entries)
end

-- As `archived`, for states that are ZSETs, from which the jobs are removed.
local function archived_sorted(key, arg)
  local found, base = archived(key, arg, function(state, ids, times)
    local unchanged = {}
    for i, time in ipairs(call('ZMSCORE', key[state], unpack(ids))) do
      unchanged[i] = time == times[i]
    end
    return unchanged
  end)
  for state, ids in pairs(found) do
    if #ids > 0 then
      call('ZREM', key[state], unpack(ids))
    end
  end
  return found, base
end

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
  for i, value in ipairs(call('HMGET', key.track, unpack(names))) do
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
  call('HSET', key.track, unpack(fields))
  if #gone > 0 then
    call('HDEL', key.track, unpack(gone))
  end
end

-- The jobs that were not seen at these times.
local function unseen(scan, ids, times)
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
      call('HSET', scan.clock.delivered_early, result_entries.early_field(scan.state, job_id), times[i])
      count = count + 1
    end
  end
  if count > 0 then
    call('HINCRBY', key.track, 'late', count)
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
    call('ZADD', scan.seen, unpack(pairs_of))
  end
end

-- Deletes seen jobs before `at`, MAX_FORGOTTEN at most; others are harmless, and are deleted by later calls.
local function forget_seen(scan, at)
  local count = math.min(call('ZCOUNT', scan.seen, '-inf', bound_before(at)), MAX_FORGOTTEN)
  if count > 0 then
    call('ZREMRANGEBYRANK', scan.seen, 0, count - 1)
  end
end

-- Sets `floor`, and deletes what was recorded about jobs below it.
local function raise_floor(scan, floor)
  local gone = {}
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
  local clock = scan.clock
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
    if call('ZCOUNT', scan.set, scan.floor, '(' .. closed) > 0 then
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
    call('HSET', scan.slices, scan.walk, scan.count)
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
          call('RPUSH', key.ledger, unpack(result_entries.found(arg.base, scan.state, ids, times)))
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
