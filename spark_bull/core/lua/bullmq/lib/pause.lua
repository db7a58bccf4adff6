-- A queue is paused and resumed.
-- @include lib: waiting(join_lists)
-- @include bullmq/lib: waiting(waiting_list)

-- The value that shows that the queue is paused: any; Node's is 1.
local function read(key)
  return redis.call('HGET', key.meta, 'paused')
end

local function write(key, mark)
  redis.call('HSET', key.meta, 'paused', mark)
end

local pause_mark = {read = read, write = write}

-- Pauses a queue; for BullMQ 5, moves its jobs to `paused`. `repeats`: whether the event is also written if the queue
-- is paused already. A pause of a guard becomes one that no guard ends; see lib/guard.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, arg, limit, repeats)
  if redis.call('HSET', key.meta, 'paused', 1) == 1 or repeats then
    redis.call('XADD', key.events, '*', 'event', 'paused')
  end
  redis.call('DEL', key.marker)
  if waiting_list(key, arg.bullmq_version) == key.paused then
    return join_lists(key, key.paused, limit)
  end
  return 0
end

-- Sets the marker that workers block on.
local function wake_workers(key)
  local call = redis.call
  if call('EXISTS', key.wait, key.prioritized) > 0 then
    call('ZADD', key.marker, 0, '0')
    return
  end
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if first[2] then
    call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
  end
end

local function resume_queue(key)
  wake_workers(key)
  redis.call('HDEL', key.meta, 'paused')
  redis.call('XADD', key.events, '*', 'event', 'resumed')
end
