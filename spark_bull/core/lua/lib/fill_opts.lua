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
