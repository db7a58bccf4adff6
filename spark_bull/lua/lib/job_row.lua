-- Fields of a job's hash, false for those it lacks. Nil and the type of the key where that is no hash: the type is looked
-- at only once HMGET has failed, so jobs in order pay nothing for it.
local function job_row(job_key, ...)
  local row = redis.pcall('HMGET', job_key, ...)
  if not row.err then
    return row
  end
  local kind = redis.call('TYPE', job_key).ok
  if kind ~= 'hash' then
    return nil, kind
  end
  return redis.call('HMGET', job_key, ...)
end
