-- @include lib/leave_active
-- @include lib/leave_groups
-- @include lib/set_of

-- Whether each of these values is the same one.
local function are_all(values, value)
  for i = 1, #values do
    if values[i] ~= value then
      return false
    end
  end
  return true
end

-- The jobs whose lock holds `token` and that are not barred, their locks, and {id, reason} of the others.
local function owned_of(base, token, ids, barred)
  local call, locks = redis.call, {}
  for i = 1, #ids do
    locks[i] = base .. ids[i] .. ':lock'
  end
  local held = call('MGET', unpack(locks))
  if are_all(held, token) and not next(barred) then
    return ids, locks, {}
  end
  local owned, owned_locks, lost = {}, {}, {}
  for i = 1, #ids do
    local id = ids[i]
    if held[i] == token and not barred[id] then
      owned[#owned + 1], owned_locks[#owned_locks + 1] = id, locks[i]
    elseif held[i] == token then
      lost[#lost + 1] = {id, barred[id]}
    else
      local why = held[i] and 'owner' or call('EXISTS', base .. id) == 1 and 'unlocked' or 'missing'
      lost[#lost + 1] = {id, why}
    end
  end
  return owned, owned_locks, lost
end

-- Removes jobs whose lock holds `token` from `active`, and deletes their locks. `barred`: id -> reason of jobs that
-- stay.
-- Returns the set of the removed jobs, {id, reason} of the others, and the groups that running jobs have left: job id
-- -> group.
local function release_owned(key, base, token, ids, barred)
  local call = redis.call
  if #ids == 0 then
    return {}, {}, {}
  end
  local owned, owned_locks, lost = owned_of(base, token, ids, barred)
  if #owned == 0 then
    return {}, lost, {}
  end
  local missing = leave_active(key.active, owned)
  call('DEL', unpack(owned_locks))
  local left = leave_groups(key, owned)
  if call('EXISTS', key.stalled) == 1 then
    call('SREM', key.stalled, unpack(owned))
  end
  local mine = set_of(owned)
  for id in pairs(missing) do
    mine[id] = nil
    lost[#lost + 1] = {id, call('EXISTS', base .. id) == 1 and 'inactive' or 'missing'}
  end
  return mine, lost, left
end
