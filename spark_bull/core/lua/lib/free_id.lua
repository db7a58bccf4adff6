-- @include lib: take_numbers

-- The id of a job without a custom id: its number, or the next one whose key nobody has. Bull and BullMQ would overwrite
-- a job there, and fail at a key of another type.
local function free_id(key, base, number)
  local job_id = string.format('%.0f', number)
  while redis.call('EXISTS', base .. job_id) == 1 do
    job_id = string.format('%.0f', take_numbers(key, 1))
  end
  return job_id
end
