-- Results, by the SETs of finished jobs.
-- @include lib: results(result_entries)

-- A text of the counts and ends of the queue's lists. It changes when a job finishes, as the job leaves `active`.
local function sign_of(key)
  return table.concat({
    tostring(call('GET', key.id)), call('SCARD', key.completed), call('SCARD', key.failed), call('ZCARD', key.delayed),
    call('LLEN', key.paused), call('LLEN', key.wait), tostring(call('LINDEX', key.wait, 0)),
    tostring(call('LINDEX', key.wait, -1)), call('LLEN', key.active), tostring(call('LINDEX', key.active, 0)),
    tostring(call('LINDEX', key.active, -1)),
  }, ' ')
end

-- Members of a SET that one step examines.
local STEP = 1000

-- Returns those members of the next step of a scan that are not in another SET, the next cursor, and the number
-- examined.
local function not_in(other, set, cursor)
  local scanned = call('SSCAN', set, cursor, 'COUNT', STEP)
  local members, unmatched = scanned[2], {}
  for from = 1, #members, STEP do
    local there = call('SMISMEMBER', other, unpack(members, from, math.min(from + STEP - 1, #members)))
    for i = 1, #there do
      if there[i] == 0 then
        unmatched[#unmatched + 1] = members[from + i - 1]
      end
    end
  end
  return unmatched, scanned[1], #members
end

-- Examines about `most` jobs of the SET of a finished state; returns whether the scan is incomplete.
-- A walk searches the finished jobs for unseen ones; then, if the sizes differ, the seen jobs for those that have left.
local function follow_set(key, arg, state, sign, most)
  local set, seen = key[state], key['seen_' .. state]
  local names = {state .. ':walk', state .. ':cursor', state .. ':sign', state .. ':quiet'}
  local walk, cursor, last_sign, quiet = unpack(call('HMGET', key.track, unpack(names)))
  if not walk then
    if sign == last_sign then
      return false
    end
    walk, cursor, last_sign = 'finished', '0', sign
  end
  while walk and most > 0 do
    local unmatched, examined
    if walk == 'finished' then
      unmatched, cursor, examined = not_in(seen, set, cursor)
      if #unmatched > 0 then
        if not quiet then
          call('RPUSH', key.ledger, unpack(result_entries.found(arg.base, state, unmatched)))
        end
        call('SADD', seen, unpack(unmatched))
      end
      if cursor == '0' then
        walk = call('SCARD', seen) ~= call('SCARD', set) and 'seen'
      end
    else
      unmatched, cursor, examined = not_in(set, seen, cursor)
      if #unmatched > 0 then
        call('SREM', seen, unpack(unmatched))
      end
      walk = cursor ~= '0' and 'seen'
    end
    most = most - math.max(examined, 1)
  end
  if walk then
    call('HSET', key.track, names[1], walk, names[2], cursor, names[3], last_sign)
  else
    call('HDEL', key.track, names[1], names[2], names[4])
    call('HSET', key.track, names[3], last_sign)
  end
  return walk and true or false
end
