-- Jobs are added: chunks, the limit of the length, deduplication.
-- @include lib: add_jobs(length_limit listed) once values(number_texts time_ms)

-- A chunk has a column per property of its jobs: one value for all of them, a list, or nothing. Returns it as a list,
-- as reading a table costs a fraction of a function call.
local function listed(chunk, name)
  local column = chunk[name]
  if type(column) == 'table' then
    return column
  end
  local list = {}
  if column ~= nil then
    for i = 1, chunk.n do
      list[i] = column
    end
  end
  return list
end

-- A chunk with only these rows of another one.
local function only_rows(chunk, rows)
  if #rows == chunk.n then
    return chunk
  end
  local part = {}
  for name, column in pairs(chunk) do
    part[name] = column
    if type(column) == 'table' then
      part[name] = {}
      for i, row in ipairs(rows) do
        part[name][i] = column[row]
      end
    end
  end
  part.n = #rows
  return part
end

-- Returns a function of the row that returns the job's creation time (ms since 1970) and delay (ms).
local function clock_of(chunk, now)
  if not (chunk.timestamp or chunk.run_at or chunk.delay) then
    return function()
      return now, 0
    end
  end
  local timestamps, delays = listed(chunk, 'timestamp'), listed(chunk, 'delay')
  local run_ats = listed(chunk, 'run_at')
  return function(i)
    local timestamp = timestamps[i] or now
    if run_ats[i] then
      return timestamp, math.max(0, run_ats[i] - timestamp)
    end
    return timestamp, delays[i] or 0
  end
end

-- The texts of options that this script has split at their marks, by text.
local SPLIT = {}

-- Splits a text at its marks: the pieces of text around them, and the marks.
local function split_at_marks(opts)
  local pieces, marks, start = {}, {}, 1
  local at = string.find(opts, '[\1-\5]')
  while at do
    pieces[#pieces + 1] = string.sub(opts, start, at - 1)
    marks[#marks + 1] = string.sub(opts, at, at)
    start = at + 1
    at = string.find(opts, '[\1-\5]', start)
  end
  pieces[#pieces + 1] = string.sub(opts, start)
  return {pieces = pieces, marks = marks, count = #marks}
end

-- Replaces the marks in the JSON text of a job's options, control characters that JSON text can't contain: \1 the
-- timestamp, \2 the delay, \3 the job id, \4 the deduplication id, \5 the parent. With them, many jobs share one text,
-- and the timestamp can be the time of Redis. `timestamp`, `delay`: better texts than numbers, which have to be
-- formatted. `parent`: JSON text.
local function fill_opts(opts, timestamp, delay, job_id, deduplication_id, parent)
  local split = SPLIT[opts]
  if not split then
    split = split_at_marks(opts)
    SPLIT[opts] = split
  end
  local pieces, marks = split.pieces, split.marks
  -- There are few marks: joining step by step is faster than `table.concat`.
  local filled = pieces[1]
  for i = 1, split.count do
    local mark, value = marks[i], parent
    if mark == '\3' then
      value = cjson.encode(job_id)
    elseif mark == '\1' then
      value = timestamp
    elseif mark == '\2' then
      value = delay
    elseif mark == '\4' then
      value = cjson.encode(deduplication_id)
    end
    filled = filled .. value .. pieces[i + 1]
  end
  return filled
end

-- Stores what only few jobs have: when they expire, and the number of stalls with which they begin.
-- Returns nil if no job of a chunk has it; else a function that stores it for the job of a row, and one that returns
-- when the first of these jobs expires, or nil.
local function job_terms(key, chunk, stalled_field)
  if not (chunk.expire_after or chunk.expire_at or chunk.stalled_counter) then
    return nil
  end
  local text, first = number_texts(), nil
  local afters, times = listed(chunk, 'expire_after'), listed(chunk, 'expire_at')
  local counters = listed(chunk, 'stalled_counter')

  local function store(row, job_id, job_key, timestamp)
    local expires = times[row] or (afters[row] and timestamp + afters[row])
    if expires then
      call('HSET', job_key, 'expireAt', text[expires])
      call('ZADD', key.expiry, text[expires], job_id)
      first = math.min(first or expires, expires)
    end
    if counters[row] then
      call('HSET', job_key, stalled_field, counters[row])
    end
  end

  return store, function()
    return first
  end
end

-- How many jobs a queue has, and may have.

-- The length of a queue: its jobs that wait for a worker, a time or other jobs, and those that registered writes have
-- yet to add, unless these wait for room or drop jobs themselves. A write with a `mode` adds none. `lists`, `zsets`:
-- keys of the states of waiting jobs; `open`: key of the open writes; `writes`: the beginning of the keys of writes.
local function queue_length(lists, zsets, open, writes)
  local length = 0
  for _, list in ipairs(lists) do
    length = length + call('LLEN', list)
  end
  for _, zset in ipairs(zsets) do
    length = length + call('ZCARD', zset)
  end
  for _, id in ipairs(call('ZRANGE', open, 0, -1)) do
    local write = call('HMGET', writes .. id, 'jobs', 'position', 'whenFull', 'mode')
    if write[1] and not write[4] and (not write[3] or write[3] == 'fail') then
      length = length + tonumber(write[1]) - tonumber(write[2])
    end
  end
  return length
end

-- The length of the queue of a script. `writes`: the beginning of the keys of writes.
local function own_length(key, writes)
  local zsets = {}
  -- Bull has delayed jobs only.
  for _, state in ipairs({'delayed', 'prioritized', 'waiting_children'}) do
    zsets[#zsets + 1] = key[state]
  end
  return queue_length({key.wait, key.paused}, zsets, key.open_writes, writes)
end

-- Whether a writer that waits for room has to wait before it looks at its rows.
local function has_no_room(limit, length)
  return limit.when_full == 'wait' and length >= limit.max_length
end

-- What may be done with the rows of a chunk from row `from` on, in a queue of `length` jobs: 'add', or 'drop', and the
-- last of these rows; or 'full': the writer fails, or waits. Jobs whose ids exist need no room.
-- `limit`: {max_length, when_full = 'fail', 'wait' or 'drop'}.
local function rows_that_fit(base, limit, length, chunk, from)
  local ids, room, last = listed(chunk, 'job_id'), limit.max_length - length, chunk.n
  local function is_new(i)
    return not ids[i] or call('EXISTS', base .. ids[i]) == 0
  end
  for i = from, chunk.n do
    if is_new(i) then
      room = room - 1
      if room < 0 then
        last = i - 1
        break
      end
    end
  end
  if last == chunk.n or (last >= from and limit.when_full ~= 'fail') then
    return 'add', last
  end
  if limit.when_full ~= 'drop' then
    return 'full'
  end
  last = from
  while last < chunk.n and is_new(last + 1) do
    last = last + 1
  end
  return 'drop', last
end

local length_limit = {own_length = own_length, has_no_room = has_no_room, rows_that_fit = rows_that_fit}

-- Jobs that are added once for each deduplication id.

-- The key that shows which job has a deduplication id, of a job that has one.
local function holder_of(change)
  local deduplication_id = call('HGET', change.key, 'deid')
  return deduplication_id and string.sub(change.key, 1, -#change.id - 1) .. 'de:' .. deduplication_id
end

local function holds_deduplication(change)
  local holder = holder_of(change)
  return holder and call('GET', holder) == change.id
end

-- The rule of a job that has none: its deduplication id is taken until it finishes.
local SIMPLE = {}

-- Returns a function of the row that returns its deduplication id, if it has one, and its rule: the members of the
-- option `deduplication`. Nil when no job of the chunk has such an id.
local function deduplications_of(chunk)
  if not chunk.deduplication_id then
    return nil
  end
  local ids, texts, rules = listed(chunk, 'deduplication_id'), listed(chunk, 'deduplication'), {}
  return function(i)
    local text = texts[i]
    if text and not rules[text] then
      rules[text] = cjson.decode(text)
    end
    return ids[i], text and rules[text] or SIMPLE
  end
end

-- Jobs of a chunk that are added without a staged write.

-- Keeps the ids of the jobs of a write in a list: an entry is an array of ids, or {first, last} of numbers that follow
-- each other. `result`: what add_jobs returned. Without `keeps_all` only such numbers are kept: one entry while the
-- numbers of a write follow each other.
local function keep_ids(list, result, keeps_all, ttl_ms)
  local ids, entry = result.ids, nil
  if result.is_range then
    local newest = call('LINDEX', list, -1)
    local before = newest and cmsgpack.unpack(newest)
    entry = {first = tonumber(ids[1]), last = tonumber(ids[#ids])}
    if before and before.last and before.last + 1 == entry.first then
      call('LSET', list, -1, cmsgpack.pack({first = before.first, last = entry.last}))
      return
    end
  elseif keeps_all then
    entry = ids
  end
  if entry then
    call('RPUSH', list, cmsgpack.pack(entry))
    call('PEXPIRE', list, ttl_ms)
  end
end

-- A reply without added jobs.
local function dropped_rows(from, last, want_ids)
  local ids = {}
  for i = 1, want_ids and last - from + 1 or 0 do
    ids[i] = ''
  end
  return {last + 1, 0, 0, 0, ids, {}, last - from + 1}
end

-- Adds jobs of a chunk, unless this call was answered before.
-- `add_jobs(key, arg, chunk, from, now, keeps_all)` returns {next, added, duplicates, deduplicated (nil: 0), ids,
-- rejected (nil: none), is_range and by_list (see commit_once)}. With the key `kept_ids`, the ids are kept there.
-- Nothing is added, and the call can be repeated, with the replies {'closed'} (the queue accepts no jobs), and {'full',
-- length of the queue} (with `arg.max_length`, '': none).
local function add_once(key, arg, add_jobs)
  return once(key.receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
    if key.intake_closed and call('EXISTS', key.intake_closed) == 1 then
      return {'closed'}, true
    end
    local limit = arg.max_length ~= '' and {max_length = tonumber(arg.max_length), when_full = arg.when_full}
    local length = limit and length_limit.own_length(key, arg.writes)
    if limit and length_limit.has_no_room(limit, length) then
      return {'full', length}, true
    end
    local chunk, from = cmsgpack.unpack(arg.chunk), tonumber(arg.from)
    if limit then
      local verdict, last = length_limit.rows_that_fit(arg.base, limit, length, chunk, from)
      if verdict == 'full' then
        return {'full', length}, true
      elseif verdict == 'drop' then
        return dropped_rows(from, last, arg.want_ids == '1')
      end
      chunk.n = last
    end
    local result = add_jobs(key, arg, chunk, from, time_ms(), key.kept_ids)
    if key.kept_ids then
      for list, part in pairs(result.by_list or {[key.kept_ids] = result}) do
        keep_ids(list, part, true, arg.kept_ids_ttl_ms)
      end
    end
    local ids = arg.want_ids == '1' and result.ids or {}
    return {result.next, result.added, result.duplicates, result.deduplicated or 0, ids, result.rejected or {}}
  end)
end
