-- Opens queues of a prepared write once the write is registered, and keeps their staged chunks from expiring: the field
-- `unkept` is the number of the first stage key of a queue that still expires. Removes a write that was given up in the
-- same way. `queues`: {write, manifest, open, watermark or nothing} of each; `decision`: from `decide`. Handles about
-- `most` keys.
-- @keys touched...
-- @returns number of the queues, from the first, that need no more calls
-- @include lib: writes(list_open_write)

local room = tonumber(arg.most)
assert(#key.touched > 0)

local function forget(queue)
  call('DEL', queue[1])
  call('ZREM', queue[3], arg.write_id)
end

-- Removes stage keys of a write that was given up; returns whether none is left.
local function give_up(queue)
  local stages = call('LPOP', queue[2], room)
  if stages then
    room = room - call('UNLINK', unpack(stages))
    return call('EXISTS', queue[2]) == 0
  end
  return true
end

local function open_queue(queue, version, is_superseded)
  call('HSET', queue[1], 'state', 'open', 'unkept', 0)
  call('PERSIST', queue[1])
  call('PERSIST', queue[2])
  list_open_write(queue[3], queue[1], arg.write_id)
  if queue[4] then
    local done = call('GET', queue[4])
    if is_superseded then
      -- Another write of this version, with other queues, was faster.
      call('HSET', queue[1], 'jobs', 0)
      call('DEL', queue[2])
    elseif not done or tonumber(done) < tonumber(version) then
      call('SET', queue[4], version, 'PX', arg.watermark_ttl_ms)
    end
  end
end

-- Keeps stage keys from expiring, from number `first` on; returns whether these were the last ones.
local function keep_stages(queue, first)
  local stages = call('LRANGE', queue[2], first, first + room - 1)
  for _, stage in ipairs(stages) do
    call('PERSIST', stage)
  end
  local is_last = #stages < room
  room = room - #stages
  if is_last then
    call('HDEL', queue[1], 'unkept')
  else
    call('HSET', queue[1], 'unkept', first + #stages)
  end
  return is_last
end

-- Returns whether the queue needs no more calls.
local function advance(queue)
  local write = call('HMGET', queue[1], 'state', 'version', 'unkept', 'superseded')
  local state, unkept = write[1], tonumber(write[3])
  if not state then
    forget(queue)
    return true
  end
  if state == 'prepared' and arg.decision == 'given-up' then
    local is_gone = give_up(queue)
    if is_gone then
      forget(queue)
    end
    return is_gone
  end
  if state == 'prepared' and arg.decision == 'registered' then
    open_queue(queue, write[2], write[4])
    unkept = 0
  end
  return not unkept or keep_stages(queue, unkept)
end

local done = 0
for _, queue in ipairs(cmsgpack.unpack(arg.queues)) do
  if room <= 0 or not advance(queue) then
    break
  end
  done, room = done + 1, room - #queue
end
return done
