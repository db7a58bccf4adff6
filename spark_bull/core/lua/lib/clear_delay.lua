-- Notes that a job is delayed no more. One that is gone must not get a field.
local function clear_delay(job_key)
  if redis.call('EXISTS', job_key) == 1 then
    redis.pcall('HSET', job_key, 'delay', '0')
  end
end
