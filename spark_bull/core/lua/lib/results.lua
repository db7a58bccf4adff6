-- The ledger of a reader of results.
-- @include lib: numbers(time_ms)

-- The times that `discover` uses: the time of Redis, the look-back window, and the bounds of the scan, '' for none. ms.
local function results_clock(arg)
  return {
    now = time_ms(),
    lookback_ms = tonumber(arg.lookback_ms),
    slice_ms = tonumber(arg.slice_ms),
    until_completed = arg.until_completed,
    until_failed = arg.until_failed,
  }
end

local RESULT_LETTERS = {completed = 'c', failed = 'f'}
local RESULT_STATES = {c = 'completed', f = 'failed', C = 'completed', F = 'failed'}

-- An entry of a ledger of results: 'c1732182000123:17' for job 17, completed at that time, ms, which is its score (''
-- for none). After a capital letter, a packed list follows: {id, time, value or false, 1 if the job was gone when it
-- was found}; `value` is its returnvalue or failedReason.
local function result_entry(state, job_id, time, value, gone)
  local letter = RESULT_LETTERS[state]
  if value or gone then
    return string.upper(letter) .. cmsgpack.pack({job_id, time, value or false, gone and 1 or 0})
  end
  return letter .. time .. ':' .. job_id
end

-- Maximum size of a value in the entry of a job that still exists, bytes.
local MAX_VALUE = 4096

-- The entries of jobs that were found in a finished state, at `times` if known. They keep failedReason, which a retry
-- would delete.
local function found_entries(base, state, ids, times)
  local entries, head = {}, RESULT_LETTERS[state]
  for i, job_id in ipairs(ids) do
    local time = times and times[i] or ''
    local why = state == 'failed' and redis.pcall('HGET', base .. job_id, 'failedReason')
    if type(why) == 'string' and #why <= MAX_VALUE then
      entries[i] = result_entry(state, job_id, time, why)
    else
      entries[i] = head .. time .. ':' .. job_id
    end
  end
  return entries
end

-- The field of `delivered_early` for a job that was found in a ZSET before its event was read.
local function early_field(state, job_id)
  return RESULT_LETTERS[state] .. job_id
end

-- Returns state, job id, time, value or false, whether the job was gone.
local function parsed_entry(entry)
  local letter = string.sub(entry, 1, 1)
  local state = RESULT_STATES[letter]
  if letter == 'c' or letter == 'f' then
    local colon = string.find(entry, ':', 2, true)
    return state, string.sub(entry, colon + 1), string.sub(entry, 2, colon - 1), false, false
  end
  local known = cmsgpack.unpack(string.sub(entry, 2))
  return state, known[1], known[2], known[3], known[4] == 1
end

local result_entries = {
  pack = result_entry,
  MAX_VALUE = MAX_VALUE,
  found = found_entries,
  early_field = early_field,
  parse = parsed_entry,
}

-- Checks that the query owns the ledger, and that no entry before `known_end` is missing, as after a fail-over to a
-- replica that lagged: other finishes would take their positions. Returns the reply of the script if not. The id counter
-- of a queue shrinks only when the queue is deleted, and jobs may then have been missed: that is refused unless
-- `accept_recreated`.
local function check_owner(key, arg, on_recreated)
  local call = redis.call
  local track = call('HMGET', key.track, 'owner', 'id', 'base')
  if not track[1] then
    return {'lost'}
  end
  if track[1] ~= arg.owner then
    return {'taken', track[1]}
  end
  local ends = tonumber(track[3]) + call('LLEN', key.ledger)
  if ends < tonumber(arg.known_end) then
    return {'behind', ends}
  end
  local was, is = tonumber(track[2]), tonumber(call('GET', key.id) or 0)
  if was > is then
    if arg.accept_recreated ~= '1' then
      return {'recreated', was, is}
    end
    on_recreated()
  end
  if was ~= is then
    call('HSET', key.track, 'id', is)
  end
end

-- The reply of `discover`: {'ok', position after the last entry, `more`, and in a dialect with events the last one
-- read, and the number of missing jobs}.
local function found_results(key, arg, more, cursor, missing)
  local call = redis.call
  for _, name in ipairs({'ledger', 'track', 'delivered_early', 'seen_completed', 'seen_failed', 'slices_completed',
    'slices_failed'}) do
    if key[name] then
      call('PEXPIRE', key[name], arg.ttl_ms)
    end
  end
  local base = tonumber(call('HGET', key.track, 'base'))
  return {'ok', base + call('LLEN', key.ledger), more, cursor, missing}
end

-- Removes up to `limit` entries before a position from a ledger of results. `unchanged(state, ids, times)` returns for
-- each job whether it has been in that state since that time. Returns {completed = ids, failed = ids} of those, and the
-- new base.
local function archived(key, arg, unchanged)
  local call = redis.call
  local base = tonumber(call('HGET', key.track, 'base') or '')
  local count = base and math.min(tonumber(arg.position) - base, tonumber(arg.limit)) or 0
  if count <= 0 then
    return {completed = {}, failed = {}}, base
  end
  local ids, times = {completed = {}, failed = {}}, {completed = {}, failed = {}}
  local entries = call('LRANGE', key.ledger, 0, count - 1)
  for _, entry in ipairs(entries) do
    local state, job_id, time = result_entries.parse(entry)
    local list = ids[state]
    list[#list + 1], times[state][#list + 1] = job_id, time
  end
  local found = {completed = {}, failed = {}}
  for state, list in pairs(ids) do
    local answers = #list > 0 and unchanged(state, list, times[state]) or {}
    for i, job_id in ipairs(list) do
      if answers[i] then
        found[state][#found[state] + 1] = job_id
      end
    end
  end
  call('LTRIM', key.ledger, #entries, -1)
  return found, call('HINCRBY', key.track, 'base', #entries)
end

-- As `archived`, for states that are ZSETs, from which the jobs are removed.
local function archived_sorted(key, arg)
  local call = redis.call
  local found, base = archived(key, arg, function(state, ids, times)
    local unchanged = {}
    for i, time in ipairs(call('ZMSCORE', key[state], unpack(ids))) do
      unchanged[i] = time == times[i]
    end
    return unchanged
  end)
  for state, ids in pairs(found) do
    if #ids > 0 then
      call('ZREM', key[state], unpack(ids))
    end
  end
  return found, base
end
