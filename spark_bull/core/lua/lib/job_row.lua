-- The values of fields of a job's hash, false for none. Nil and the type of the key when that is not a hash: the type
-- is read only after HMGET has failed, so that intact jobs cost no more calls.
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
