-- Notes the id of a job whose key is no hash. Such a job can neither run nor fail, so it stays out of all states.
local function set_aside(key, job_id, kind)
  redis.call('HSET', key.damaged, job_id, kind)
end
