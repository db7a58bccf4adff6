-- A removed job releases its deduplication id, if it owns it.
local function free_deduplication(base, job_id, deduplication_id)
  local holder = deduplication_id and base .. 'de:' .. deduplication_id
  if holder and redis.pcall('GET', holder) == job_id then
    redis.call('UNLINK', holder, base .. 'dn:' .. deduplication_id)
  end
end
