-- The length of a queue: its jobs that wait for a worker, a time or other jobs, and those that registered writes have
-- yet to add, unless these wait for room or drop jobs themselves. `lists`, `zsets`: keys of the states of waiting jobs;
-- `open`: key of the open writes; `writes`: the beginning of the keys of writes.
local function queue_length(lists, zsets, open, writes)
  local call, length = redis.call, 0
  for _, list in ipairs(lists) do
    length = length + call('LLEN', list)
  end
  for _, zset in ipairs(zsets) do
    length = length + call('ZCARD', zset)
  end
  for _, id in ipairs(call('ZRANGE', open, 0, -1)) do
    local write = call('HMGET', writes .. id, 'jobs', 'position', 'whenFull')
    if write[1] and (not write[3] or write[3] == 'fail') then
      length = length + tonumber(write[1]) - tonumber(write[2])
    end
  end
  return length
end
