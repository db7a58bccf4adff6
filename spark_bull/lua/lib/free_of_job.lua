-- The key that shows which job has a deduplication id, of a job that has one.
local function holder_of(change)
  local deduplication_id = redis.call('HGET', change.key, 'deid')
  return deduplication_id and string.sub(change.key, 1, -#change.id - 1) .. 'de:' .. deduplication_id
end

local function holds_deduplication(change)
  local holder = holder_of(change)
  return holder and redis.call('GET', holder) == change.id
end

-- Frees the deduplication id of a job, which holds it.
local function free_of_job(change)
  redis.call('DEL', holder_of(change))
  return 'done'
end
