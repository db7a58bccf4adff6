-- @include bullmq/lib/unaccounted_jobs
-- @include lib/last_event
-- @include lib/result_entry

local function parts(event_id)
  local ms, number = string.match(event_id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

local function is_behind(event_id, other_id)
  local ms, number = parts(event_id)
  local other_ms, other_number = parts(other_id)
  return ms > other_ms or (ms == other_ms and number > other_number)
end

-- Whether events after `cursor` have left the stream; and what counts as read last from now on. A new reader misses none
-- of those before its start. One at '0-0', that has seen no event yet, misses some if the stream is full since.
local function has_gap(key, cursor, is_new)
  local call = redis.call
  local first = call('XRANGE', key.events, '-', '+', 'COUNT', 1)[1]
  if is_new then
    return false, first and cursor or last_event(key.events)
  end
  if cursor == '0-0' then
    if first then
      local most = tonumber(call('HGET', key.meta, 'opts.maxLenEvents') or 10000)
      return call('XLEN', key.events) >= most, cursor
    end
  elseif first then
    return is_behind(first[1], cursor), cursor
  end
  local last = last_event(key.events)
  if not is_behind(last, cursor) then
    return false, cursor
  end
  return true, last
end

-- Whether a walk through the ZSETs has found this finish already, when events were read up to a horizon only.
local function was_told(key, finish)
  local field = told_field(finish.state, finish.id)
  local told = redis.call('HGET', key.told, field)
  -- A job that has moved on since has no time: the first event of its state is the one.
  return told and (not finish.time or told == finish.time) and redis.call('HDEL', key.told, field) == 1
end

-- {state, job id, value, ms} of an event that says that a job has finished in one of the states wanted.
local function finish_of(event, wanted)
  local fields = event[2]
  local state = fields[2]
  if fields[1] ~= 'event' or not wanted[state] then
    return nil
  end
  local by_name = {}
  for i = 3, #fields, 2 do
    by_name[fields[i]] = fields[i + 1]
  end
  local value = by_name.returnvalue or by_name.failedReason
  return by_name.jobId and {state = state, id = by_name.jobId, value = value, ms = parts(event[1])}
end

-- Gives finishes the times of their jobs in the ZSETs, the last one of a job only; what has none is gone, or moved on.
-- A time that is later than clocks can be wrong is that of another finish, whose event comes; `score` has it all the same.
local function set_times(key, finishes, lookback_ms)
  local ids, of = {completed = {}, failed = {}}, {completed = {}, failed = {}}
  local met = {}
  for i = #finishes, 1, -1 do
    local finish = finishes[i]
    if not met[finish.id] then
      met[finish.id] = true
      local list = ids[finish.state]
      list[#list + 1] = finish.id
      of[finish.state][#list] = finish
    end
  end
  for state, list in pairs(ids) do
    local times = #list > 0 and redis.call('ZMSCORE', key[state], unpack(list)) or {}
    for i = 1, #list do
      local finish = of[state][i]
      finish.score = times[i]
      finish.time = times[i] and tonumber(times[i]) <= finish.ms + lookback_ms and times[i]
    end
  end
end

local function write_finishes(key, since, finishes)
  local entries, seen = {}, {completed = {}, failed = {}}
  local any_told = redis.call('EXISTS', key.told) == 1
  for _, finish in ipairs(finishes) do
    local time = finish.time
    if finish.score then
      local list = seen[finish.state]
      list[#list + 1], list[#list + 2] = finish.score, finish.id
    end
    local id_accessed = any_told and was_told(key, finish)
    if not id_accessed and not (time and since and tonumber(time) < since) then
      local value = finish.value
      if time and value and #value > MAX_KNOWN then
        value = false
      end
      entries[#entries + 1] = result_entry(finish.state, finish.id, time or finish.ms .. '', value, not time)
    end
  end
  for state, list in pairs(seen) do
    if #list > 0 then
      redis.call('ZADD', key['seen_' .. state], unpack(list))
    end
  end
  if #entries > 0 then
    redis.call('RPUSH', key.ledger, unpack(entries))
  end
end

-- Reads about `most` events. Returns whether there are more to be read, and the id of the last one read. The field `gap`
-- of `track` notes that events left the stream before they were read.
local function follow_events(key, arg, most)
  local call = redis.call
  local is_new = save_first_balance(key, arg)
  local track = call('HMGET', key.track, 'event', 'since')
  local since = tonumber(track[2] or '')
  local last = arg.until_event == '' and '+' or arg.until_event
  if last ~= '+' and not is_behind(last, track[1]) then
    return false, track[1]
  end
  local gap, cursor = has_gap(key, track[1], is_new)
  call('HSET', key.track, 'event', cursor)
  if gap then
    call('HSET', key.track, 'gap', 1)
  end
  local events = call('XRANGE', key.events, '(' .. cursor, last, 'COUNT', most)
  if #events == 0 then
    return false, cursor
  end
  local wanted, finishes = {}, {}
  for _, state in ipairs(arg.states) do
    wanted[state] = true
  end
  for _, event in ipairs(events) do
    finishes[#finishes + 1] = finish_of(event, wanted)
  end
  set_times(key, finishes, tonumber(arg.lookback_ms))
  write_finishes(key, since, finishes)
  cursor = events[#events][1]
  call('HSET', key.track, 'event', cursor)
  return #events == most, cursor
end
