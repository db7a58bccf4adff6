local RESULT_LETTERS = {completed = 'c', failed = 'f'}
local RESULT_STATES = {c = 'completed', f = 'failed', C = 'completed', F = 'failed'}

-- One entry of a ledger of results: 'c1732182000123:17' says that job 17 completed at that time, ms, as its score shows
-- it ('' where there is none). With a capital letter, what is known of the job follows, packed: {id, time, value or
-- false, 1 if the job was gone by then}; `value` is its returnvalue, or why it failed.
local function result_entry(state, job_id, time, value, gone)
  local letter = RESULT_LETTERS[state]
  if value or gone then
    return string.upper(letter) .. cmsgpack.pack({job_id, time, value or false, gone and 1 or 0})
  end
  return letter .. time .. ':' .. job_id
end

-- What an entry holds of a job at most that is still there, bytes.
local MAX_KNOWN = 4096

-- The entry of a job that was found where finished jobs are: why it failed is noted, as a retry takes that away.
local function found_entry(base, state, job_id, time)
  local why = state == 'failed' and redis.pcall('HGET', base .. job_id, 'failedReason')
  return result_entry(state, job_id, time, type(why) == 'string' and #why <= MAX_KNOWN and why)
end

-- A job that was found in a ZSET though its event may still be read, by its state: a field of `told`.
local function told_field(state, job_id)
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
