-- A finished job frees its debounce id, unless that is held for a time.
local function free_debounce(base, job_id)
  local call = redis.call
  local debounced = call('HGET', base .. job_id, 'deid')
  local ttl = debounced and call('PTTL', base .. 'de:' .. debounced)
  if ttl == 0 or ttl == -1 then
    call('DEL', base .. 'de:' .. debounced)
  end
end

-- Removes finished jobs from `state` until it holds what `keep` allows: {count, age (s)}, some thousands at a time.
local function keep_bull(base, state, keep, now)
  local call = redis.call
  local function remove(ids)
    for _, id in ipairs(ids) do
      call('UNLINK', base .. id, base .. id .. ':logs')
    end
    if #ids > 0 then
      call('ZREM', state, unpack(ids))
    end
  end
  if keep.age then
    remove(call('ZREVRANGEBYSCORE', state, now - keep.age * 1000, '-inf', 'LIMIT', 0, 1000))
  end
  if keep.count and keep.count > 0 then
    local over = call('ZCARD', state) - keep.count
    if over > 0 then
      remove(call('ZRANGE', state, 0, math.min(over, 1000) - 1))
    end
  end
end
