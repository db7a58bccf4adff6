-- The value that shows that the queue is paused: any; Node's is 1.
local function read(key)
  return redis.call('GET', key.meta_paused) or redis.call('HGET', key.meta, 'paused')
end

local function write(key, mark)
  redis.call('SET', key.meta_paused, mark)
end

local pause_mark = {read = read, write = write}
