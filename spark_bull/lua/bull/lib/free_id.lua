-- The id of a job without a custom id: its number, or the next free number if that is the custom id of another job
-- (which Bull would overwrite).
local function free_id(key, base, number)
  local job_id = number .. ''
  while redis.call('EXISTS', base .. job_id) == 1 do
    job_id = redis.call('INCR', key.id) .. ''
  end
  return job_id
end
