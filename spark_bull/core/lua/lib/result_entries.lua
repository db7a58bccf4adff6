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
