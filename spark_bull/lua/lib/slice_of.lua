local tonumber, sub, sha1hex = tonumber, string.sub, redis.sha1hex

-- The slice, from 0 on, that a job belongs to in any state. Ids of the counter are distributed evenly.
local function slice_of(job_id, slices)
  local number = tonumber(job_id)
  if not (number and number >= 0 and number < 9007199254740992 and number % 1 == 0) then
    number = tonumber(sub(sha1hex(job_id), 1, 8), 16)
  end
  return number % slices
end
