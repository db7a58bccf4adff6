-- Reads how many jobs have ended per minute, as workers count them.
-- @returns {total, when the current minute began to count, total before it, minutes from `first` to `last`, number of all}

local meta = call('HMGET', key.meta, 'count', 'prevTS', 'prevCount')
return {
  meta[1],
  meta[2],
  meta[3],
  call('LRANGE', key.data, arg.first, arg.last),
  call('LLEN', key.data),
}
