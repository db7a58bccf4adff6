-- @include lib/leave_active

-- Takes jobs whose lock holds `token` out of `active`, and drops their locks. `barred`, id -> why, stay as they are.
-- Returns the set of those taken, and {id, why} of the others.
local function release_owned(key, base, token, ids, barred)
  local call = redis.call
  local locks, ours, held_locks, mine, lost = {}, {}, {}, {}, {}
  if #ids == 0 then
    return mine, lost
  end
  for i = 1, #ids do
    locks[i] = base .. ids[i] .. ':lock'
  end
  local held = call('MGET', unpack(locks))
  for i = 1, #ids do
    local id = ids[i]
    if held[i] == token and not (barred and barred[id]) then
      ours[#ours + 1], held_locks[#held_locks + 1] = id, locks[i]
    elseif held[i] == token then
      lost[#lost + 1] = {id, barred[id]}
    else
      local why = held[i] and 'owner' or call('EXISTS', base .. id) == 1 and 'unlocked' or 'missing'
      lost[#lost + 1] = {id, why}
    end
  end
  if #ours > 0 then
    local missing = leave_active(key.active, ours)
    call('DEL', unpack(held_locks))
    if call('EXISTS', key.stalled) == 1 then
      call('SREM', key.stalled, unpack(ours))
    end
    for i = 1, #ours do
      local id = ours[i]
      if missing[id] then
        lost[#lost + 1] = {id, call('EXISTS', base .. id) == 1 and 'inactive' or 'missing'}
      else
        mine[id] = true
      end
    end
  end
  return mine, lost
end
