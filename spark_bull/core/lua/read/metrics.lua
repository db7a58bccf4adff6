-- Reads how many jobs have ended per minute, as workers count them.
-- @returns {total, when the current minute began to count, total before it, minutes from `first` to `last`, number of all}

local meta = redis.call('HMGET', key.meta, 'count', 'prevTS', 'prevCount')
return {
  meta[1],
  meta[2],
  meta[3],
  redis.call('LRANGE', key.data, arg.first, arg.last),
  redis.call('LLEN', key.data),
}
