-- @include lib/ended_jobs

-- The balance of a reader: how many jobs have ended, by the counters of the queue, less how many it has found. It stays
-- the same as long as every job that ends is found. The states that are read belong to its name.
local function balance_field(arg)
  return 'balance:' .. table.concat(arg.states, ',')
end

local function found_jobs(key)
  return tonumber(redis.call('HGET', key.track, 'base')) + redis.call('LLEN', key.ledger)
end

local function first_balance_field(arg)
  return 'first_' .. balance_field(arg)
end

-- What the balance comes to when all that a new reader is to find has been found: what the sets of finished jobs hold, but
-- for jobs from before its start, and nothing that left them before. It holds until the balance itself is known. Returns whether the reader
-- is new.
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

-- How many ended jobs are unaccounted for, once all there is was looked at: 0, unless events left the stream unread; -1 when
-- it can't be known. Up to a horizon, `late` of the jobs found have ended after it.
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

-- The same when all events have been read and none is missing: whatever has ended was found.
local function save_event_balance(key, arg)
  local field = balance_field(arg)
  local known = redis.call('HMGET', key.track, field, 'gap')
  if known[1] and not known[2] then
    redis.call('HSET', key.track, field, ended_jobs(key, arg.states) - found_jobs(key))
  end
end
