-- @include bull/lib: publish

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
