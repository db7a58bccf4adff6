-- How many jobs a queue has, and may have.
-- @include lib: chunk(listed)

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

-- The length of the queue of a script. `writes`: the beginning of the keys of writes.
local function own_length(key, writes)
  local zsets = {}
  -- Bull has delayed jobs only.
  for _, state in ipairs({'delayed', 'prioritized', 'waiting_children'}) do
    zsets[#zsets + 1] = key[state]
  end
  return queue_length({key.wait, key.paused}, zsets, key.open_writes, writes)
end

-- Whether a writer that waits for room has to wait before it looks at its rows.
local function has_no_room(limit, length)
  return limit.when_full == 'wait' and length >= limit.max_length
end

-- What may be done with the rows of a chunk from row `from` on, in a queue of `length` jobs: 'add', or 'drop', and the
-- last of these rows; or 'full': the writer fails, or waits. Jobs whose ids exist need no room.
-- `limit`: {max_length, when_full = 'fail', 'wait' or 'drop'}.
local function rows_that_fit(base, limit, length, chunk, from)
  local ids, room, last = listed(chunk, 'job_id'), limit.max_length - length, chunk.n
  local function is_new(i)
    return not ids[i] or redis.call('EXISTS', base .. ids[i]) == 0
  end
  for i = from, chunk.n do
    if is_new(i) then
      room = room - 1
      if room < 0 then
        last = i - 1
        break
      end
    end
  end
  if last == chunk.n or (last >= from and limit.when_full ~= 'fail') then
    return 'add', last
  end
  if limit.when_full ~= 'drop' then
    return 'full'
  end
  last = from
  while last < chunk.n and is_new(last + 1) do
    last = last + 1
  end
  return 'drop', last
end

local length_limit = {own_length = own_length, has_no_room = has_no_room, rows_that_fit = rows_that_fit}
