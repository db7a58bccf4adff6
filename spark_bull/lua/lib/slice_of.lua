local tonumber, sub, sha1hex = tonumber, string.sub, redis.sha1hex

-- Which of `slices` a job belongs to, 0 for the first, whatever its state. Ids off the counter are dealt out evenly.
local function slice_of(job_id, slices)
  local number = tonumber(job_id)
  if not (number and number >= 0 and number < 9007199254740992 and number % 1 == 0) then
    number = tonumber(sub(sha1hex(job_id), 1, 8), 16)
  end
  return number % slices
end
