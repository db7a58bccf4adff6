-- @include lib: ended_jobs

-- The balance of a reader: the number of ended jobs by the counters of the queue, less the number of jobs found. It
-- stays the same as long as every job that ends is found. Its field has the names of the states that are read.
local function balance_field(arg)
  return 'balance:' .. table.concat(arg.states, ',')
end

local function found_jobs(key)
  return tonumber(redis.call('HGET', key.track, 'base')) + redis.call('LLEN', key.ledger)
end

local function first_balance_field(arg)
  return 'first_' .. balance_field(arg)
end

-- Stores the balance that a new reader has after it has found all jobs that it starts with. These are the finished jobs
-- in their sets, except the ones from before its start. It is used until the balance itself is known. Returns whether
-- the reader is new.
local function save_first_balance(key, arg)
  local call, field = redis.call, first_balance_field(arg)
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
  local call, field, to_horizon = redis.call, balance_field(arg), arg.until_ended ~= ''
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
  local known = redis.call('HMGET', key.track, field, 'gap')
  if known[1] and not known[2] then
    redis.call('HSET', key.track, field, ended_jobs(key, arg.states) - found_jobs(key))
  end
end

local results_balance = {
  save_first = save_first_balance,
  unaccounted = unaccounted_jobs,
  save_after_events = save_event_balance,
}
