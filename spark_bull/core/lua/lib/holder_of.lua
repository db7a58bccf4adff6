-- The key that shows which job has a deduplication id, of a job that has one.
local function holder_of(change)
  local deduplication_id = redis.call('HGET', change.key, 'deid')
  return deduplication_id and string.sub(change.key, 1, -#change.id - 1) .. 'de:' .. deduplication_id
end
