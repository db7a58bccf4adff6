-- Jobs that run one after the other.
-- @include lib: chunk(listed)
-- @include bullmq/lib: deduplication(free_deduplication) parents(allow_wrongtype split_job_key unlink_job)

-- How many ancestors a script may still delete.
local ancestors_left = 100

-- Whether a parent is of the same queue and waits for `child_key` alone; and its id.
local function is_next_of_sequence(key, arg, child_key, parent_key)
  local call, base, parent_id = redis.call, split_job_key(arg, parent_key)
  local children = parent_key .. ':dependencies'
  return base == arg.base and call('SCARD', children) == 1 and call('SISMEMBER', children, child_key) == 1
    and call('ZSCORE', key.waiting_children, parent_id), parent_id
end

local function cut(key, arg, job_key)
  local call, child_key, is_open = redis.call, job_key, false
  local parent_key, parent = unpack(call('HMGET', job_key, 'parentKey', 'parent'))
  while parent_key do
    local is_next, parent_id = is_next_of_sequence(key, arg, child_key, parent_key)
    is_open = is_next and ancestors_left == 0
    if not is_next or is_open then
      break
    end
    ancestors_left = ancestors_left - 1
    local fields = call('HMGET', parent_key, 'parentKey', 'parent', 'deid')
    call('ZREM', key.waiting_children, parent_id)
    free_deduplication(arg.base, parent_id, fields[3])
    unlink_job(parent_key)
    child_key, parent_key, parent = parent_key, fields[1], fields[2]
  end
  if child_key ~= job_key and parent_key then
    -- A worker that claims the job now lets the next ancestor start.
    if call('SREM', parent_key .. ':dependencies', child_key) == 1 then
      call('SADD', parent_key .. ':dependencies', job_key)
    end
    call('HSET', job_key, 'parentKey', parent_key, 'parent', parent or '')
  elseif child_key ~= job_key then
    call('HDEL', job_key, 'parentKey', 'parent')
  end
  return is_open
end

-- Deletes the ancestors that are to be removed with a job, as in a sequence: each one is of the same queue and waits
-- only for the one before it. At most 100 in one script; the job becomes the child of the next one. Returns
-- whether there are more: the job must stay until a later script has deleted them.
local function cut_sequence(key, arg, job_id)
  local is_open = false
  allow_wrongtype(function()
    is_open = cut(key, arg, arg.base .. job_id)
  end)
  return is_open
end

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
