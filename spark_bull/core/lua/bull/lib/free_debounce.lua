-- A finished job releases its debounce id, unless that has a TTL.
local function free_debounce(base, job_id)
  local call = redis.call
  local debounced = call('HGET', base .. job_id, 'deid')
  local ttl = debounced and call('PTTL', base .. 'de:' .. debounced)
  if ttl == 0 or ttl == -1 then
    call('DEL', base .. 'de:' .. debounced)
  end
end
