-- Jobs that leave the worker that has claimed them.
-- @include lib: numbers(set_of)

local function all_in(set, ids)
  for _, id in ipairs(ids) do
    if not set[id] then
      return false
    end
  end
  return true
end

local function is_reverse(ids, list)
  local count = #ids
  if #list ~= count then
    return false
  end
  for i = 1, count do
    if ids[i] ~= list[count - i + 1] then
      return false
    end
  end
  return true
end

-- Up to this number of jobs behind it for each of its jobs, a chunk counts as near the tail; Lua unpacks 7,000 at most.
local NEAR_TAIL, MOST_MOVED = 8, 7000

-- Removes `count` adjacent jobs of `active`, the last of them at `last`. Near the tail, those behind them are taken off
-- and put back; elsewhere, they are overwritten by a mark and removed by one LREM.
local function remove_adjacent(active, last, count)
  local call = redis.call
  local behind = call('LLEN', active) - 1 - last
  if behind <= math.min(NEAR_TAIL * count, MOST_MOVED) then
    local moved = call('LRANGE', active, last + 1, -1)
    call('LTRIM', active, 0, last - count)
    call('RPUSH', active, unpack(moved))
    return
  end
  for i = last - count + 1, last do
    call('LSET', active, i, '')
  end
  call('LREM', active, -count, '')
end

-- Removes jobs from `active`. The jobs of a chunk are usually adjacent: at the tail when they are the oldest, else at
-- the head, else in between. Others are searched for one by one.
-- Returns the set of those that were not in the list.
local function leave_active(active, ids)
  local call, count = redis.call, #ids
  if count == 0 then
    return {}
  end
  local tail = call('LRANGE', active, -count, -1)
  if is_reverse(ids, tail) then
    call('LTRIM', active, 0, -count - 1)
    return {}
  end
  local wanted = set_of(ids)
  if #tail == count and all_in(wanted, tail) then
    call('LTRIM', active, 0, -count - 1)
    return {}
  end
  local head = call('LRANGE', active, 0, count - 1)
  if #head == count and all_in(wanted, head) then
    call('LTRIM', active, count, -1)
    return {}
  end
  local last = call('LPOS', active, ids[1], 'RANK', -1)
  if last and last >= count - 1 and all_in(wanted, call('LRANGE', active, last - count + 1, last)) then
    remove_adjacent(active, last, count)
    return {}
  end
  local missing = {}
  for _, id in ipairs(ids) do
    if call('LREM', active, -1, id) == 0 then
      missing[id] = true
    end
  end
  return missing
end

-- Removes jobs from the running ones of their groups, in the ZSET `group_active`: job id -> number of its group.
-- Returns job id -> group.
local function leave_groups(key, ids)
  local call, left = redis.call, {}
  if call('EXISTS', key.group_active) == 1 then
    for i, number in ipairs(#ids > 0 and call('ZMSCORE', key.group_active, unpack(ids)) or {}) do
      if number then
        left[ids[i]] = string.format('%016.0f', tonumber(number))
        call('ZREM', key.group_active, ids[i])
      end
    end
  end
  return left
end

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
