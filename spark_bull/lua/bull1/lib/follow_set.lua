-- @include lib/result_entry

-- How many members of a SET one step looks at.
local STEP = 1000

-- What is different after any job has finished, as it was active, and in most cases waiting, before.
local function sign_of(key)
  local call = redis.call
  return table.concat({
    tostring(call('GET', key.id)), call('SCARD', key.completed), call('SCARD', key.failed), call('ZCARD', key.delayed),
    call('LLEN', key.paused), call('LLEN', key.wait), tostring(call('LINDEX', key.wait, 0)),
    tostring(call('LINDEX', key.wait, -1)), call('LLEN', key.active), tostring(call('LINDEX', key.active, 0)),
    tostring(call('LINDEX', key.active, -1)),
  }, ' ')
end

-- The members of the next step of a scan that aren't in another SET; the cursor to go on from.
local function not_in(other, set, cursor)
  local scanned = redis.call('SSCAN', set, cursor, 'COUNT', STEP)
  local members, strangers = scanned[2], {}
  for from = 1, #members, STEP do
    local there = redis.call('SMISMEMBER', other, unpack(members, from, math.min(from + STEP - 1, #members)))
    for i = 1, #there do
      if there[i] == 0 then
        strangers[#strangers + 1] = members[from + i - 1]
      end
    end
  end
  return strangers, scanned[1], #members
end

local function write_down(key, arg, state, ids)
  local entries = {}
  for i, job_id in ipairs(ids) do
    entries[i] = found_entry(arg.base, state, job_id, '')
  end
  redis.call('RPUSH', key.ledger, unpack(entries))
end

-- Looks at about `most` jobs of the SET of a finished state; returns whether there are more to be looked at.
-- A walk goes through the finished jobs for those not seen, then, if the numbers differ, through those seen for those that
-- have left.
local function follow_set(key, arg, state, sign, most)
  local call, set, seen = redis.call, key[state], key['seen_' .. state]
  local names = {state .. ':walk', state .. ':cursor', state .. ':sign', state .. ':quiet'}
  local walk, cursor, last_sign, quiet = unpack(call('HMGET', key.track, unpack(names)))
  if not walk then
    if sign == last_sign then
      return false
    end
    walk, cursor, last_sign = 'finished', '0', sign
  end
  while walk and most > 0 do
    local strangers, looked
    if walk == 'finished' then
      strangers, cursor, looked = not_in(seen, set, cursor)
      if #strangers > 0 then
        if not quiet then
          write_down(key, arg, state, strangers)
        end
        call('SADD', seen, unpack(strangers))
      end
      if cursor == '0' then
        walk = call('SCARD', seen) ~= call('SCARD', set) and 'seen'
      end
    else
      strangers, cursor, looked = not_in(set, seen, cursor)
      if #strangers > 0 then
        call('SREM', seen, unpack(strangers))
      end
      walk = cursor ~= '0' and 'seen'
    end
    most = most - math.max(looked, 1)
  end
  if walk then
    call('HSET', key.track, names[1], walk, names[2], cursor, names[3], last_sign)
  else
    call('HDEL', key.track, names[1], names[2], names[4])
    call('HSET', key.track, names[3], last_sign)
  end
  return walk and true or false
end
