-- @include lib/columns

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
local function forget_ended(key, base, count)
  local call, ended = redis.call, {}
  local entries = call('HRANDFIELD', key.sequence_tails, count, 'WITHVALUES')
  for i = 1, #entries, 2 do
    local fields = call('HMGET', base .. entries[i + 1], 'timestamp', 'finishedOn')
    if not fields[1] or fields[2] then
      ended[#ended + 1] = entries[i]
    end
  end
  if #ended > 0 then
    call('HDEL', key.sequence_tails, unpack(ended))
  end
  call('PEXPIRE', key.sequence_tails, TAILS_TTL_MS)
end

-- Returns a function that adds a new job to the sequence of its row, and returns whether it has to wait for the job
-- before it; nil for a chunk without sequences.
local function sequencer(key, arg, chunk)
  if not chunk.sequence then
    return nil
  end
  local call, base, tails = redis.call, arg.base, key.sequence_tails
  local keys = listed(chunk, 'sequence')
  local queue = cjson.encode(string.sub(base, 1, -2))
  local flag = chunk.sequence_failure

  return function(i, job_id)
    local tail = call('HGET', tails, keys[i])
    call('HSET', tails, keys[i], job_id)
    if not tail or not can_precede(base .. tail) then
      return false
    end
    call('HSET', base .. tail, 'parentKey', base .. job_id, 'parent',
      '{"id":' .. cjson.encode(job_id) .. ',"queueKey":' .. queue .. ',"' .. flag .. '":true}')
    call('SADD', base .. job_id .. ':dependencies', base .. tail)
    return true
  end
end
