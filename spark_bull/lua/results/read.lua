-- Reads the jobs of entries start..stop of a ledger of results, the last one excluded, or as many as weigh about
-- `most_bytes`. The first two fields are `timestamp`, which every job has, and `finishedOn`. What happened to a job after
-- it had finished is not shown: its time, and its value if that is known, are those of the entry.
-- @keys ledger track
-- @args base start stop most_bytes fields...
-- @returns msgpack: {position behind the last one read, columns: those of the fields, then id, state, and 'there', 'gone'
-- (already when it was found) or 'missing'; a column is a list, or what all rows have}; {position} when no entry is there
-- @include lib/collapsed
-- @include lib/job_row
-- @include lib/result_entry

local call, fields, start = redis.call, arg.fields, tonumber(arg.start)
local base = tonumber(call('HGET', key.track, 'base') or start)
if start < base then
  return cmsgpack.pack({base})
end
local place = {}
for i, name in ipairs(fields) do
  place[name] = i
end
local VALUE = {completed = place.returnvalue, failed = place.failedReason}
local OTHER = {completed = place.failedReason, failed = place.returnvalue}

local function known_row(row, state, time, value)
  if time ~= '' and row[2] ~= time then
    local at, other = VALUE[state], OTHER[state]
    if at and (row[2] or not row[at]) then
      row[at] = value
    end
    if other then
      row[other] = false
    end
    row[2] = time
  end
end

local rows, bytes, most_bytes = {}, 0, tonumber(arg.most_bytes)
local width = #fields

-- Of a job whose key is no hash.
local function no_fields()
  local row = {}
  for i = 1, width do
    row[i] = false
  end
  return row
end

for i, entry in ipairs(call('LRANGE', key.ledger, start - base, tonumber(arg.stop) - base - 1)) do
  local state, job_id, time, value, gone = parsed_entry(entry)
  local row = job_row(arg.base .. job_id, unpack(fields)) or no_fields()
  local there = row[1] and 'there' or gone and 'gone' or 'missing'
  known_row(row, state, time, value)
  for field = 1, width do
    local text = row[field]
    if text then
      bytes = bytes + #text
    end
  end
  row[width + 1], row[width + 2], row[width + 3] = job_id, state, there
  rows[i] = row
  if bytes >= most_bytes then
    break
  end
end
if #rows == 0 then
  return cmsgpack.pack({start})
end
return cmsgpack.pack({start + #rows, collapsed(rows)})
