-- @include lib: listed number_texts

-- Stores what only few jobs have: when they expire, and the number of stalls with which they begin.
-- Returns nil if no job of a chunk has it; else a function that stores it for the job of a row, and one that returns
-- when the first of these jobs expires, or nil.
local function job_terms(key, chunk, stalled_field)
  if not (chunk.expire_after or chunk.expire_at or chunk.stalled_counter) then
    return nil
  end
  local call, text, first = redis.call, number_texts(), nil
  local afters, times = listed(chunk, 'expire_after'), listed(chunk, 'expire_at')
  local counters = listed(chunk, 'stalled_counter')

  local function store(row, job_id, job_key, timestamp)
    local expires = times[row] or (afters[row] and timestamp + afters[row])
    if expires then
      call('HSET', job_key, 'expireAt', text[expires])
      call('ZADD', key.expiry, text[expires], job_id)
      first = math.min(first or expires, expires)
    end
    if counters[row] then
      call('HSET', job_key, stalled_field, counters[row])
    end
  end

  return store, function()
    return first
  end
end
