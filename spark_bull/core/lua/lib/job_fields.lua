-- @include lib: is_job job_row

-- Reads fields of jobs, in the order of `ids` from position `from` on, until there are `most` jobs or the values reach
-- `most_bytes`. The first field must be `timestamp`. Missing jobs, and keys that are not hashes, are left out.
-- Returns {ids = of the jobs that exist, values = job after job, false for none}, first position not read.
local function job_fields(base, ids, from, fields, most, most_bytes)
  local width = #fields
  local found, values, bytes = {}, {}, 0
  local position = from
  while position <= #ids and #found < most and bytes < most_bytes do
    local job_id = ids[position]
    local row = job_row(base .. job_id, unpack(fields))
    if row and (row[1] or is_job(base, job_id)) then
      found[#found + 1] = job_id
      local offset = (#found - 1) * width
      for i = 1, width do
        local value = row[i]
        values[offset + i] = value
        if value then
          bytes = bytes + #value
        end
      end
    end
    position = position + 1
  end
  return {ids = found, values = values}, position
end
