-- Reads fields of jobs, in the order of `ids` from position `from` on, until there are `most` jobs or the values weigh
-- `most_bytes`. The first field must be one that every job has: a hash without it is what is left of a job that is gone.
-- Returns {ids = of the jobs that are there, values = one after the other, false for none}, first position not read.
local function job_fields(base, ids, from, fields, most, most_bytes)
  local call = redis.call
  local width = #fields
  local found, values, bytes = {}, {}, 0
  local position = from
  while position <= #ids and #found < most and bytes < most_bytes do
    local job_id = ids[position]
    local row = call('HMGET', base .. job_id, unpack(fields))
    if row[1] then
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
