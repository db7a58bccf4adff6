-- Adds 1 to a number in a job's hash; a text that is not a number counts as 0. Returns the number, nil when the key is
-- not a hash: one that is gone must not get a field.
local function count_up(job_key, field)
  if redis.call('TYPE', job_key).ok ~= 'hash' then
    return nil
  end
  local count = redis.pcall('HINCRBY', job_key, field, 1)
  if type(count) == 'number' then
    return count
  end
  redis.call('HSET', job_key, field, '1')
  return 1
end
