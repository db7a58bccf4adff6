-- Reads the jobs of entries start..stop of a ledger of results, the last one excluded; fewer when their fields reach
-- `most_bytes`. `fields` includes `timestamp`, which every job has, and `finishedOn`. The time and, if known, the value
-- are those of the entry: what happened to the job later is not shown.
-- @keys ledger track
-- @args base start stop most_bytes fields...
-- @returns msgpack of {position = after the last one read, columns = by name, see lib/collapsed: the fields, `id`,
-- `state`, and in `there` 'there', 'gone' (it was gone when it was discovered) or 'missing'}; no columns without entries
-- @include lib/collapsed
-- @include lib/job_row
-- @include lib/no_fields
-- @include lib/positions_of
-- @include lib/result_entry

local call, fields, start = redis.call, arg.fields, tonumber(arg.start)
local base = tonumber(call('HGET', key.track, 'base') or start)
if start < base then
  return cmsgpack.pack({position = base})
end
local at = positions_of(fields)
local VALUE = {completed = at.returnvalue, failed = at.failedReason}
local OTHER = {completed = at.failedReason, failed = at.returnvalue}

local function known_row(row, state, time, value)
  if time ~= '' and row[at.finishedOn] ~= time then
    local own, other = VALUE[state], OTHER[state]
    if own and (row[at.finishedOn] or not row[own]) then
      row[own] = value
    end
    if other then
      row[other] = false
    end
    row[at.finishedOn] = time
  end
end

local rows, bytes, most_bytes = {}, 0, tonumber(arg.most_bytes)
local width = #fields

for i, entry in ipairs(call('LRANGE', key.ledger, start - base, tonumber(arg.stop) - base - 1)) do
  local state, job_id, time, value, gone = parsed_entry(entry)
  local row = job_row(arg.base .. job_id, unpack(fields)) or no_fields(width)
  local there = row[at.timestamp] and 'there' or gone and 'gone' or 'missing'
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
  return cmsgpack.pack({position = start})
end
for _, name in ipairs({'id', 'state', 'there'}) do
  fields[#fields + 1] = name
end
return cmsgpack.pack({position = start + #rows, columns = collapsed(rows, fields)})
