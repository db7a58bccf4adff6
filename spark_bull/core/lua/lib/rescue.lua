-- Jobs that leave their worker, stall or expire.
-- @include lib: groups(group_places) jobs(job_row) rescue(release_owned) settle_jobs(drop_missing)
-- @include lib: values(set_of time_ms)
-- @include {dialect}/lib: rescue(STARTED_FIELD)

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
-- the head, else in between. Others are searched for one by one. Constants of the usual way are texts, as Redis is slow
-- to format numbers. Returns the set of the ids that were not in the list.
local function leave_active(active, ids)
  local count = #ids
  if count == 0 then
    return {}
  end
  local tail = call('LRANGE', active, -count, '-1')
  if is_reverse(ids, tail) then
    call('LTRIM', active, '0', -count - 1)
    return {}
  end
  local wanted = set_of(ids)
  if #tail == count and all_in(wanted, tail) then
    call('LTRIM', active, '0', -count - 1)
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
  local left = {}
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
  local token, locks = outcomes.token, {}
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

-- Jobs whose worker has died, and how often that has happened.

-- While this time passes, a job that moves from one ending process to the next has stalled once.
local ONE_STOP_MS = 30000

-- Whether a job has stalled once more, as its process ends. When several processes are stopped, one after the other,
-- the next one may have claimed the job again: this is no further stall if it was running already, `since` then, ms
-- since 1970. The ZSET `interrupted` has the jobs and when they stalled in this way.
local function counts_as_stall(key, id, since, now)
  local last = tonumber(call('ZSCORE', key.interrupted, id) or nil)
  if last and since <= last and now < last + ONE_STOP_MS then
    return false
  end
  call('ZREMRANGEBYSCORE', key.interrupted, '-inf', string.format('%.0f', now - ONE_STOP_MS))
  call('ZADD', key.interrupted, string.format('%.0f', now), id)
  call('PEXPIRE', key.interrupted, ONE_STOP_MS)
  return true
end

-- Returns jobs whose lock holds `lock_token` to the queue, as their process ends while they run; the first one becomes
-- the next one. `requeue(id, counts)` returns whether the job waits again, or has failed; `counts`: whether it has
-- stalled once more. Returns the ids of both.
local function stall_owned(key, arg, requeue)
  local now, since = time_ms(), tonumber(arg.since)
  local mine, lost, left = release_owned(key, arg.base, {token = arg.lock_token}, arg.ids, {})
  drop_missing(arg.base, arg.ids, mine, lost)
  local back, failed = {}, {}
  for i = #arg.ids, 1, -1 do
    local id = arg.ids[i]
    if mine[id] then
      local list = requeue(id, counts_as_stall(key, id, since, now)) and back or failed
      list[#list + 1] = id
    end
  end
  group_places.keep(key, left, back)
  return {back, failed}
end

-- Adds 1 to a number in a job's hash; a text that is not a number counts as 0. Returns the number, nil when the key is
-- not a hash: one that is gone must not get a field.
local function count_up(job_key, field)
  if call('TYPE', job_key).ok ~= 'hash' then
    return nil
  end
  local count = redis.pcall('HINCRBY', job_key, field, 1)
  if type(count) == 'number' then
    return count
  end
  call('HSET', job_key, field, '1')
  return 1
end

-- Counts how often jobs were given back by their processors without a rate limit, in a field of
-- their hashes that others lack.
local function count_returns(base, returned, mine)
  for _, id in ipairs(returned) do
    if mine[id] then
      count_up(base .. id, 'returned')
    end
  end
end

-- Jobs that expire before they start.

-- Whether a job may not start any more: its time has come, and it has not started; and when the time of another job
-- that has not started will come, ms since 1970 as text. A job that has started loses its time; one with a lock may
-- have been claimed without a start.
local function has_expired(job_key, now)
  local row = job_row(job_key, 'expireAt', STARTED_FIELD)
  if not (row and row[1]) then
    return false
  end
  if row[2] then
    if call('EXISTS', job_key .. ':lock') == 0 then
      call('HDEL', job_key, 'expireAt')
    end
    return false
  end
  return (tonumber(row[1]) or math.huge) <= now, row[1]
end

-- When jobs have to be looked at as the next one expires, ms since 1970, or nil.
local function next_expiry_of(expiry)
  local first = call('ZRANGE', expiry, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end

-- Notes in `expiry` when the list of waiting jobs has to be looked at again, as one of the jobs of `expired` may be in
-- it: the score of the member '', which is no id.
local function look_again(key, at)
  if call('EXISTS', key.expired) == 1 then
    call('ZADD', key.expiry, string.format('%.0f', at), '')
  end
end

-- Lets a job that was claimed, but has not started, expire at its time, which has left `expiry` if it has come meanwhile.
local function expire_again(key, job_key, id)
  local expires = call('HGET', job_key, 'expireAt')
  if expires then
    -- A time that is no number never comes.
    redis.pcall('ZADD', key.expiry, expires, id)
  end
end
