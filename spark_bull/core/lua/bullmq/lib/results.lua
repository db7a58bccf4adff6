-- Results, by the events of finished jobs.
-- @include lib: events(event_parts is_behind last_event) guard(ended_jobs) results(result_entries)
-- @include lib: values(finite_number)

-- The balance of a reader: the number of ended jobs by the counters of the queue, less the number of jobs found. It
-- stays the same as long as every job that ends is found. Its field has the names of the states that are read.
local function balance_field(arg)
  return 'balance:' .. table.concat(arg.states, ',')
end

local function found_jobs(key)
  return tonumber(call('HGET', key.track, 'base')) + call('LLEN', key.ledger)
end

local function first_balance_field(arg)
  return 'first_' .. balance_field(arg)
end

-- Stores the balance that a new reader has after it has found all jobs that it starts with. These are the finished jobs
-- in their sets, except the ones from before its start. It is used until the balance itself is known. Returns whether
-- the reader is new.
local function save_first_balance(key, arg)
  local field = first_balance_field(arg)
  if call('LLEN', key.ledger) > 0 or call('HEXISTS', key.track, field) == 1 then
    return false
  end
  local balance = ended_jobs(key, arg.states) - found_jobs(key)
  for _, state in ipairs(arg.states) do
    local floor, quiet = unpack(call('HMGET', key.track, state .. ':floor', state .. ':quiet'))
    if floor and not quiet and call('TYPE', key[state]).ok == 'zset' then
      balance = balance - call('ZCOUNT', key[state], floor, '+inf')
    end
  end
  call('HSET', key.track, field, balance)
  return true
end

-- The number of ended jobs that are unaccounted for after a complete scan: 0, unless events were trimmed unread; -1 if
-- unknown. `late`: number of jobs found that have ended after the horizon.
local function unaccounted_jobs(key, arg)
  local field, to_horizon = balance_field(arg), arg.until_ended ~= ''
  local ended = to_horizon and tonumber(arg.until_ended) or ended_jobs(key, arg.states)
  local known = call('HMGET', key.track, field, 'gap', 'late', first_balance_field(arg))
  local before, gap, late = tonumber(known[1] or known[4] or ''), known[2], to_horizon and tonumber(known[3] or 0) or 0
  local balance, missing = ended - found_jobs(key), 0
  if not gap then
    call('HSET', key.track, field, balance + late)
    return 0
  end
  if not before then
    missing = -1
  elseif balance > before then
    missing = balance - before
  elseif to_horizon then
    balance = before
  end
  if missing == 0 or arg.strict ~= '1' then
    call('HDEL', key.track, 'gap')
    call('HSET', key.track, field, balance)
  end
  return missing
end

-- Updates the balance after all events were read and none is missing, so that all ended jobs have been found.
local function save_event_balance(key, arg)
  local field = balance_field(arg)
  local known = call('HMGET', key.track, field, 'gap')
  if known[1] and not known[2] then
    call('HSET', key.track, field, ended_jobs(key, arg.states) - found_jobs(key))
  end
end

local results_balance = {
  save_first = save_first_balance,
  unaccounted = unaccounted_jobs,
  save_after_events = save_event_balance,
}

-- Returns whether events after `cursor` were trimmed, and the new cursor. For a new reader, events before its start are
-- not missing. A reader at '0-0', which has read no event, misses some if the stream has reached its maximum length.
local function has_gap(key, cursor, is_new)
  local first = call('XRANGE', key.events, '-', '+', 'COUNT', 1)[1]
  if is_new then
    return false, first and cursor or last_event(key.events)
  end
  if cursor == '0-0' then
    if first then
      local most = finite_number(call('HGET', key.meta, 'opts.maxLenEvents')) or 10000
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

-- Whether a walk through the ZSETs found this finish before its event was read.
local function was_delivered_early(key, finish)
  local field = result_entries.early_field(finish.state, finish.id)
  local time = call('HGET', key.delivered_early, field)
  -- A job that has left the state has no time: then the first event of that state counts.
  return time and (not finish.time or time == finish.time) and call('HDEL', key.delivered_early, field) == 1
end

-- {state, id, value, ms} of the event of a job that finished in one of the wanted states; nil for another event.
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
  return by_name.jobId and {state = state, id = by_name.jobId, value = value, ms = event_parts(event[1])}
end

-- Sets `time` of the last finish of each job to its score in the ZSETs; a job without a score is gone, or has left the
-- state. A score beyond the tolerated clock skew belongs to a later finish, whose event follows: only `score` gets it.
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
    local times = #list > 0 and call('ZMSCORE', key[state], unpack(list)) or {}
    for i = 1, #list do
      local finish = of[state][i]
      finish.score = times[i]
      finish.time = times[i] and tonumber(times[i]) <= finish.ms + lookback_ms and times[i]
    end
  end
end

local function write_finishes(key, since, finishes)
  local entries, seen = {}, {completed = {}, failed = {}}
  local any_early = call('EXISTS', key.delivered_early) == 1
  for _, finish in ipairs(finishes) do
    local time = finish.time
    if finish.score then
      local list = seen[finish.state]
      list[#list + 1], list[#list + 2] = finish.score, finish.id
    end
    local is_known = any_early and was_delivered_early(key, finish)
    if not is_known and not (time and since and tonumber(time) < since) then
      local value = finish.value
      if time and value and #value > result_entries.MAX_VALUE then
        value = false
      end
      entries[#entries + 1] = result_entries.pack(finish.state, finish.id, time or finish.ms .. '', value, not time)
    end
  end
  for state, list in pairs(seen) do
    if #list > 0 then
      call('ZADD', key['seen_' .. state], unpack(list))
    end
  end
  if #entries > 0 then
    call('RPUSH', key.ledger, unpack(entries))
  end
end

-- Reads about `most` events. Returns whether further ones are left, and the id of the last one read. Sets the field
-- `gap` of `track` when events were trimmed before they were read.
local function follow_events(key, arg, most)
  local is_new = results_balance.save_first(key, arg)
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
