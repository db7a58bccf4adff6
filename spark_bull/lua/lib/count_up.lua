-- Adds 1 to a number in a job's hash; a text that is not a number counts as 0. Returns the number, nil when the key is
-- not a hash.
local function count_up(job_key, field)
  local count = redis.pcall('HINCRBY', job_key, field, 1)
  if type(count) == 'number' then
    return count
  end
  if redis.call('TYPE', job_key).ok ~= 'hash' then
    return nil
  end
  redis.call('HSET', job_key, field, '1')
  return 1
end
