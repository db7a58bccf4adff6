-- Jobs and queues are removed.
-- @include lib: values(time_ms)

-- Ids of a list that a call looks at for each one that it may remove: to remove ids from within a list, Redis compares
-- all ids between them and an end of the list, so fewer calls remove as many.
local LOOKS = 5

-- The next slice of a state, at most `size` ids: those that are claimed next, due next or finished longest ago come
-- first. `position`: number of jobs kept so far; for a SET, which has no order, the cursor of SSCAN. Returns ids,
-- scores (of a ZSET) and the next cursor (of a SET).
local slice_of_state = {
  list = function(state, position, size)
    local members, ids = call('LRANGE', state, -position - size, -position - 1), {}
    for i = #members, 1, -1 do
      ids[#ids + 1] = members[i]
    end
    return ids, {}
  end,
  zset = function(state, position, size)
    local pairs_of = call('ZRANGE', state, position, position + size - 1, 'WITHSCORES')
    local ids, scores = {}, {}
    for i = 1, #pairs_of, 2 do
      ids[#ids + 1], scores[#scores + 1] = pairs_of[i], tonumber(pairs_of[i + 1])
    end
    return ids, scores
  end,
  set = function(state, position, size)
    local scanned = call('SSCAN', state, position, 'COUNT', size)
    return scanned[2], {}, scanned[1]
  end,
}

-- Removes the ids at some places of a slice from their state. Returns those that were in it.
local leave_state = {
  -- Within a list, ids are overwritten by a mark that is no id, and one LREM removes all marks, from the nearer end.
  list = function(state, position, ids, places)
    local gone = {}
    for i, place in ipairs(places) do
      gone[i] = ids[place]
    end
    if position == 0 and places[#places] == #places then
      call('LTRIM', state, 0, -#gone - 1)
    else
      for _, place in ipairs(places) do
        call('LSET', state, -position - place, '')
      end
      local is_nearer_head = 2 * position > call('LLEN', state)
      call('LREM', state, is_nearer_head and #gone or -#gone, '')
    end
    return gone
  end,
  zset = function(state, _, ids, places)
    local gone = {}
    for i, place in ipairs(places) do
      gone[i] = ids[place]
    end
    call('ZREM', state, unpack(gone))
    return gone
  end,
  -- SSCAN may return an id twice.
  set = function(state, _, ids, places)
    local gone = {}
    for _, place in ipairs(places) do
      if call('SREM', state, ids[place]) == 1 then
        gone[#gone + 1] = ids[place]
      end
    end
    return gone
  end,
}

-- Of a state's next jobs, removes each for which `matches(job_id, score)` is true, at most `arg.size`, and none after
-- `arg.limit`. Nil means that neither this job nor a later one matches, 'again' that the next call goes on with
-- this job. Returns the next position, or '' at the end, and the ids.
local function sweep(key, arg, matches)
  local size, limit = tonumber(arg.size), tonumber(arg.limit)
  local window = arg.kind == 'list' and LOOKS * size or size
  local position = arg.kind == 'set' and arg.position or tonumber(arg.position)
  local ids, scores, cursor = slice_of_state[arg.kind](key.state, position, window)
  local places, seen, over = {}, #ids, cursor == '0' or (not cursor and #ids < window)
  for place, job_id in ipairs(ids) do
    local is_match = matches(job_id, scores[place])
    if is_match == 'again' then
      seen, over = place - 1, false
      break
    end
    if is_match then
      places[#places + 1] = place
    end
    if is_match == nil or #places == limit then
      over = true
      break
    end
    if not cursor and #places == size and place < #ids then
      seen, over = place, false
      break
    end
  end
  local gone = {}
  if #places > 0 then
    gone = leave_state[arg.kind](key.state, position, ids, places)
  end
  return over and '' or cursor or position + seen - #gone, gone
end

-- Returns the function of an id that says which jobs `drain` removes, see sweep: all.
local function drained_test()
  return function()
    return true
  end
end

local pop = {
  list = function(state, count)
    return call('RPOP', state, count)
  end,
  set = function(state, count)
    return call('SPOP', state, count)
  end,
  zset = function(state, count)
    local pairs_of, ids = call('ZPOPMIN', state, count), {}
    for i = 1, #pairs_of, 2 do
      ids[#ids + 1] = pairs_of[i]
    end
    return ids
  end,
  hash = function(state, count)
    local ids = call('HRANDFIELD', state, count)
    if #ids > 0 then
      call('HDEL', state, unpack(ids))
    end
    return ids
  end,
}

-- Removes the next `limit` jobs (or members) of `stores`, each {key, type, remove(ids)}. Returns whether there may be
-- more.
local function remove_members(stores, limit)
  for _, store in ipairs(stores) do
    local ids = pop[store[2]](store[1], limit) or {}
    if #ids > 0 then
      store[3](ids)
    end
    limit = limit - #ids
    if limit <= 0 then
      return true
    end
  end
  return false
end

-- Deletes the ids that `arg.writes` writes to the queue have kept, from number `arg.position` on, the latest first. The
-- next jobs of the queue have the same ids. Returns whether there may be more.
local function forget_ids(key, arg)
  local first, limit, is_more = tonumber(arg.position), tonumber(arg.writes), false
  for _, writes in ipairs({key.finished_writes, key.open_writes}) do
    local ids = call('ZREVRANGE', writes, first, first + limit - 1)
    for _, write_id in ipairs(ids) do
      if call('UNLINK', arg.kept_ids .. write_id) == 1 then
        -- The write would go on with the ids of its other jobs, as if they were all.
        call('HDEL', arg.records .. write_id, 'keepsIds')
      end
    end
    is_more = is_more or #ids == limit
  end
  return is_more
end

-- How long the time is kept at which a queue was deleted, ms: longer than ledgers of results.
local DELETED_TTL_MS = 30 * 86400000

-- Removes by `obliterate_queue`, which pauses the queue first, its jobs and keys, and the ids that writes have kept. The
-- key `deleted` tells readers of results that a queue was deleted which had jobs. Returns 'open' (call again) or 'done'.
local function delete_queue(key, arg, obliterate_queue)
  local had_jobs = call('EXISTS', key.id) == 1
  local state = obliterate_queue(key, arg)
  if state == 'done' and had_jobs then
    call('SET', key.deleted, time_ms(), 'PX', DELETED_TTL_MS)
  end
  return forget_ids(key, arg) and 'open' or state
end
