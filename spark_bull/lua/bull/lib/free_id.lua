-- The id of a job that brings none: its number, unless somebody chose just that as a custom id; then
-- the next number that is free. (Bull would overwrite the other job.)
local function free_id(key, base, number)
  local job_id = number .. ''
  while redis.call('EXISTS', base .. job_id) == 1 do
    job_id = redis.call('INCR', key.id) .. ''
  end
  return job_id
end
