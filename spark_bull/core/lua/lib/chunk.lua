-- The columns of a chunk of jobs.
-- @include lib: numbers(number_texts)

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
  local call, text, first = redis.call, number_texts(), nil
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
