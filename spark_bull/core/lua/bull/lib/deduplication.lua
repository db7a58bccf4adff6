-- Jobs that are added once for each deduplication id.
-- @include bull/lib: events(publish)

-- Takes a debounce id for a job, for `ttl` ms, or without it until the job finishes. When another job has the id,
-- publishes that and returns its id.
local function debounce(arg, debounce_id, ttl, job_id)
  local call, holder = redis.call, arg.base .. 'de:' .. debounce_id
  local is_free
  if ttl then
    is_free = call('SET', holder, job_id, 'PX', ttl, 'NX')
  else
    is_free = call('SET', holder, job_id, 'NX')
  end
  if is_free then
    return nil
  end
  local kept = call('GET', holder)
  publish(arg, 'debounced', arg.base .. 'debounced@' .. arg.token, kept)
  return kept
end

-- A finished job releases its debounce id, unless that has a TTL.
local function free_debounce(base, job_id)
  local call = redis.call
  local debounced = call('HGET', base .. job_id, 'deid')
  local ttl = debounced and call('PTTL', base .. 'de:' .. debounced)
  if ttl == 0 or ttl == -1 then
    call('DEL', base .. 'de:' .. debounced)
  end
end
