-- Lets a job that was claimed, but has not started, expire at its time, which has left `expiry` if it has come meanwhile.
local function expire_again(key, job_key, id)
  local expires = redis.call('HGET', job_key, 'expireAt')
  if expires then
    -- A time that is no number never comes.
    redis.pcall('ZADD', key.expiry, expires, id)
  end
end
