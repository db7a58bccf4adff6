-- @include lib: leave_active leave_groups set_of

-- The set of these jobs if each of their locks holds this token, else nil.
local function all_owned(ids, held, token)
  local mine = {}
  for i = 1, #ids do
    if held[i] ~= token then
      return nil
    end
    mine[ids[i]] = true
  end
  return mine
end

-- The tokens of jobs that were claimed under others than `outcomes.token`, by job id. `tokens`: token -> ids.
local function other_tokens(outcomes)
  if not outcomes.token_of then
    outcomes.token_of = {}
    for token, ids in pairs(outcomes.tokens or {}) do
      for i = 1, #ids do
        outcomes.token_of[ids[i]] = token
      end
    end
  end
  return outcomes.token_of
end

-- The jobs whose lock holds the token of their claim and that are not barred: their ids, the set of these, and their
-- locks; and {id, reason} of the others.
local function owned_of(base, outcomes, ids, barred)
  local call, token, locks = redis.call, outcomes.token, {}
  for i = 1, #ids do
    locks[i] = base .. ids[i] .. ':lock'
  end
  local held = call('MGET', unpack(locks))
  local mine = not outcomes.tokens and not next(barred) and all_owned(ids, held, token)
  if mine then
    return ids, mine, locks, {}
  end
  local owned, owned_locks, lost, others = {}, {}, {}, other_tokens(outcomes)
  for i = 1, #ids do
    local id = ids[i]
    local is_owned = held[i] == (others[id] or token)
    if is_owned and not barred[id] then
      owned[#owned + 1], owned_locks[#owned_locks + 1] = id, locks[i]
    elseif is_owned then
      lost[#lost + 1] = {id, barred[id]}
    else
      local why = held[i] and 'owner' or call('EXISTS', base .. id) == 1 and 'unlocked' or 'missing'
      lost[#lost + 1] = {id, why}
    end
  end
  return owned, set_of(owned), owned_locks, lost
end

-- Removes jobs whose lock holds the token of their claim from `active`, and deletes their locks. `barred`: id -> reason
-- of jobs that stay.
-- Returns the set of the removed jobs, {id, reason} of the others, and the groups that running jobs have left: job id
-- -> group.
local function release_owned(key, base, outcomes, ids, barred)
  local call = redis.call
  if #ids == 0 then
    return {}, {}, {}
  end
  local owned, mine, owned_locks, lost = owned_of(base, outcomes, ids, barred)
  if #owned == 0 then
    return {}, lost, {}
  end
  local missing = leave_active(key.active, owned)
  call('DEL', unpack(owned_locks))
  local left = leave_groups(key, owned)
  if call('EXISTS', key.stalled) == 1 then
    call('SREM', key.stalled, unpack(owned))
  end
  for id in pairs(missing) do
    mine[id] = nil
    lost[#lost + 1] = {id, call('EXISTS', base .. id) == 1 and 'inactive' or 'missing'}
  end
  return mine, lost, left
end
