-- Jobs that expire before they start.
-- @include lib: jobs(job_row)
-- @include {dialect}/lib: expiry(STARTED_FIELD)

-- Whether a job may not start any more: its time has come, and it has not started; and when the time of another job
-- that has not started will come, ms since 1970 as text. A job that has started loses its time; one with a lock may
-- have been claimed without a start.
local function has_expired(job_key, now)
  local row = job_row(job_key, 'expireAt', STARTED_FIELD)
  if not (row and row[1]) then
    return false
  end
  if row[2] then
    if redis.call('EXISTS', job_key .. ':lock') == 0 then
      redis.call('HDEL', job_key, 'expireAt')
    end
    return false
  end
  return (tonumber(row[1]) or math.huge) <= now, row[1]
end

-- When jobs have to be looked at as the next one expires, ms since 1970, or nil.
local function next_expiry_of(expiry)
  local first = redis.call('ZRANGE', expiry, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end

-- Notes in `expiry` when the list of waiting jobs has to be looked at again, as one of the jobs of `expired` may be in
-- it: the score of the member '', which is no id.
local function look_again(key, at)
  if redis.call('EXISTS', key.expired) == 1 then
    redis.call('ZADD', key.expiry, string.format('%.0f', at), '')
  end
end

-- Lets a job that was claimed, but has not started, expire at its time, which has left `expiry` if it has come meanwhile.
local function expire_again(key, job_key, id)
  local expires = redis.call('HGET', job_key, 'expireAt')
  if expires then
    -- A time that is no number never comes.
    redis.pcall('ZADD', key.expiry, expires, id)
  end
end
