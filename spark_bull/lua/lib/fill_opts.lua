-- The texts of options that this script has split at their marks, by text.
local SPLIT = {}

-- Splits a text into pieces, of which those at `places` stand for marks: {place, mark} of each.
local function split_at_marks(opts)
  local pieces, places, start = {}, {}, 1
  local at = string.find(opts, '[\1-\5]')
  while at do
    pieces[#pieces + 1] = string.sub(opts, start, at - 1)
    places[#places + 1] = {#pieces + 1, string.sub(opts, at, at)}
    pieces[#pieces + 1] = ''
    start = at + 1
    at = string.find(opts, '[\1-\5]', start)
  end
  pieces[#pieces + 1] = string.sub(opts, start)
  return {pieces = pieces, places = places}
end

-- Replaces the marks in the JSON text of a job's options, control characters that JSON text can't contain: \1 the
-- timestamp, \2 the delay, \3 the job id, \4 the deduplication id, \5 the parent. With them, many jobs share one text,
-- and the timestamp can be the time of Redis. `parent`: JSON text.
local function fill_opts(opts, timestamp, delay, job_id, deduplication_id, parent)
  local split = SPLIT[opts]
  if not split then
    split = split_at_marks(opts)
    SPLIT[opts] = split
  end
  local pieces = split.pieces
  for _, place in ipairs(split.places) do
    local at, mark = place[1], place[2]
    if mark == '\3' then
      pieces[at] = cjson.encode(job_id)
    elseif mark == '\1' then
      pieces[at] = timestamp
    elseif mark == '\2' then
      pieces[at] = delay
    elseif mark == '\4' then
      pieces[at] = cjson.encode(deduplication_id)
    else
      pieces[at] = parent
    end
  end
  return table.concat(pieces)
end
