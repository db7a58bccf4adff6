-- @include lib/leave_active
-- @include lib/leave_groups

-- Removes jobs whose lock holds `token` from `active`, and deletes their locks. `barred`: id -> reason of jobs that
-- stay.
-- Returns the set of the removed jobs, {id, reason} of the others, and the groups that running jobs have left: job id
-- -> group.
local function release_owned(key, base, token, ids, barred)
  local call = redis.call
  local locks, owned, owned_locks, mine, lost = {}, {}, {}, {}, {}
  if #ids == 0 then
    return mine, lost, {}
  end
  for i = 1, #ids do
    locks[i] = base .. ids[i] .. ':lock'
  end
  local held = call('MGET', unpack(locks))
  for i = 1, #ids do
    local id = ids[i]
    if held[i] == token and not (barred and barred[id]) then
      owned[#owned + 1], owned_locks[#owned_locks + 1] = id, locks[i]
    elseif held[i] == token then
      lost[#lost + 1] = {id, barred[id]}
    else
      local why = held[i] and 'owner' or call('EXISTS', base .. id) == 1 and 'unlocked' or 'missing'
      lost[#lost + 1] = {id, why}
    end
  end
  local left = {}
  if #owned > 0 then
    local missing = leave_active(key.active, owned)
    call('DEL', unpack(owned_locks))
    left = leave_groups(key, owned)
    if call('EXISTS', key.stalled) == 1 then
      call('SREM', key.stalled, unpack(owned))
    end
    for i = 1, #owned do
      local id = owned[i]
      if missing[id] then
        lost[#lost + 1] = {id, call('EXISTS', base .. id) == 1 and 'inactive' or 'missing'}
      else
        mine[id] = true
      end
    end
  end
  return mine, lost, left
end
