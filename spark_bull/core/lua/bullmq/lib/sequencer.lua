-- @include lib: listed

-- A sequence is a key, and jobs with this key that run one after the other: each is the parent of the one before.
-- key.sequence_tails: HASH key -> the last job. Entries whose jobs have ended count for nothing, and are removed later.

-- How long the entries are kept after the last write, ms: longer than jobs wait.
local TAILS_TTL_MS = 400 * 86400000

-- Whether a job has not ended, and can get a parent.
local function can_precede(job_key)
  local fields = redis.call('HMGET', job_key, 'timestamp', 'finishedOn', 'parentKey')
  return fields[1] and not fields[2] and not fields[3]
end

-- Removes entries of ended jobs, of `count` that are chosen at random. With twice as many as are added, there are in the
-- long run not many more of them than of others.
local function forget_ended(tails, base, count)
  local call, ended = redis.call, {}
  local entries = call('HRANDFIELD', tails, count, 'WITHVALUES')
  for i = 1, #entries, 2 do
    local fields = call('HMGET', base .. entries[i + 1], 'timestamp', 'finishedOn')
    if not fields[1] or fields[2] then
      ended[#ended + 1] = entries[i]
    end
  end
  if #ended > 0 then
    call('HDEL', tails, unpack(ended))
  end
end

-- Returns two functions, or nil for a chunk without sequences:
--   follows(i, job_id): adds a new job to the sequence of its row; returns whether it has to wait for the job before it.
--   keep_tails(): stores the last jobs of the sequences, after all rows.
local function sequencer(key, arg, chunk)
  if not chunk.sequence then
    return nil
  end
  local call, base, tails = redis.call, arg.base, key.sequence_tails
  local keys, flag = listed(chunk, 'sequence'), chunk.sequence_failure
  local stored, last, changed, new = call('HMGET', tails, unpack(keys)), {}, {}, 0
  local end_of_field = ',"queueKey":' .. cjson.encode(string.sub(base, 1, -2)) .. ',"' .. flag .. '":true}'

  -- The unfinished job before the one of a row, if any.
  local function job_before(i)
    local tail = last[keys[i]]
    if tail then
      return tail
    end
    changed[#changed + 1] = keys[i]
    if not stored[i] then
      new = new + 1
    elseif can_precede(base .. stored[i]) then
      return stored[i]
    end
  end

  local function follows(i, job_id)
    local before = job_before(i)
    last[keys[i]] = job_id
    if not before then
      return false
    end
    local job_key = base .. job_id
    call('HSET', base .. before, 'parentKey', job_key, 'parent', '{"id":' .. cjson.encode(job_id) .. end_of_field)
    call('SADD', job_key .. ':dependencies', base .. before)
    return true
  end

  local function keep_tails()
    local entries = {}
    for i, name in ipairs(changed) do
      entries[2 * i - 1], entries[2 * i] = name, last[name]
    end
    if #entries > 0 then
      call('HSET', tails, unpack(entries))
      call('PEXPIRE', tails, TAILS_TTL_MS)
    end
    if new > 0 then
      forget_ended(tails, base, 2 * new)
    end
  end

  return follows, keep_tails
end
