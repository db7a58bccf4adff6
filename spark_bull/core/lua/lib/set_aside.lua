-- Records the id of a job whose key is not a hash but of another type (`kind`), or whose id is not UTF-8 ('id'). Such a
-- job can neither run nor fail, and is in no state.
local function set_aside(key, job_id, kind)
  redis.call('HSET', key.damaged, job_id, kind)
end
