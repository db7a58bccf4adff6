-- The value that shows that the queue is paused: any; Node's is 1.
local function read(key)
  return redis.call('HGET', key.meta, 'paused')
end

local function write(key, mark)
  redis.call('HSET', key.meta, 'paused', mark)
end

local pause_mark = {read = read, write = write}
