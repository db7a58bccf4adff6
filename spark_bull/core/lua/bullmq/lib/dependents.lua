-- Jobs that depend on others without being their parents, or run one after the other.
-- @include lib: add_jobs(listed) jobs(args_at keys_at)
-- @include bullmq/lib: add_jobs(chunk_parents) deduplication(free_deduplication)
-- @include bullmq/lib: flows(allow_wrongtype family leave_parent parent_of release_parent split_job_key unlink_job)

-- The key of the relay of a job: its parent, in place of several jobs that depend on it. It is a job of a queue that
-- nobody but promoters works; see run_relays.
local function relay_key(key, job_id)
  return key.relays .. ':job-' .. job_id
end

-- Lets jobs wait for jobs that they depend on. `links`: {ids = of these, dependents = a list of ids for each, relayed =
-- whether each has a relay, on_failure = flag for their failure}. All were added by the same write, and wait: a job
-- that does not wait was there before, and neither waits nor is waited for. The one dependent of a job is its parent,
-- as in BullMQ; several ones are told of its end by a relay.
local function link_jobs(key, arg, links, now)
  local base = arg.base
  local relayed = links.relayed
  local flag = links.on_failure and ',"' .. links.on_failure .. '":true' or ''

  local function waits(job_id)
    return call('ZSCORE', key.waiting_children, job_id)
  end

  local function set_parent(job_key, parent_key, parent_id, queue)
    call('HSET', job_key, 'parentKey', parent_key, 'parent',
      '{"id":' .. cjson.encode(parent_id) .. ',"queueKey":' .. cjson.encode(queue) .. flag .. '}')
  end

  local function add_relay(job_id, job_key)
    local relay = relay_key(key, job_id)
    local relay_id = string.sub(relay, #key.relays + 2)
    if call('HSETNX', relay, 'name', 'relay') == 1 then
      call('HSET', relay, 'data', '{}', 'opts', '{}', 'timestamp', string.format('%.0f', now), 'delay', '0',
        'priority', '0', 'of', job_id, 'flag', links.on_failure or '')
      call('SADD', relay .. ':dependencies', job_key)
      call('ZADD', key.relay_waiting_children, now, relay_id)
      set_parent(job_key, relay, relay_id, key.relays)
    end
    return relay
  end

  for i, job_id in ipairs(links.ids) do
    local job_key = base .. job_id
    if waits(job_id) then
      for _, dependent in ipairs(links.dependents[i]) do
        if waits(dependent) then
          call('SADD', base .. dependent .. ':dependencies', job_key)
          if relayed[i] then
            call('RPUSH', add_relay(job_id, job_key) .. ':dependents', dependent)
          else
            set_parent(job_key, base .. dependent, dependent, string.sub(base, 1, -2))
          end
        end
      end
    end
  end
end

-- Maximum number of dependents that one call tells of an end, with the jobs that it deletes.
local MOST_DEPENDENTS = 200

-- Tells the next dependents of a relay how its job has ended, as if each were the parent of that job; `most` at most.
-- If many jobs were removed with its own, they are removed, too, when they wait for nothing else. Returns how many,
-- with the jobs deleted.
local function tell(key, arg, relay, most, now)
  local fields = call('HMGET', relay, 'of', 'flag', 'defa', 'removed')
  local job_key = arg.base .. (fields[1] or '')
  local value, reason = call('HGET', relay .. ':processed', job_key), call('HGET', relay .. ':failed', job_key)
  -- Without a result, the job failed or was removed: those that depend on it go on, or fail.
  local flag = fields[3] and 'fpof' or reason and fields[2] or 'rdof'
  local told = 0
  while told < most do
    local dependent = call('LPOP', relay .. ':dependents')
    if not dependent then
      break
    end
    local parent_key = arg.base .. dependent
    if fields[4] then
      local _, deleted = leave_parent(key, arg, job_key, parent_key, true)
      told = told + deleted
    elseif value then
      family.child_completed(key, arg, job_key, parent_key, value, now)
    else
      family.child_failed(key, arg, job_key, parent_key, {[flag] = true}, reason or '', now)
    end
    told = told + 1
  end
  return told
end

-- Ends relays whose jobs have ended, which BullMQ has moved to the waiting ones of their queue: those that depend on
-- such a job go on. Returns whether there are more.
local function run_relays(key, arg, now)
  local left = MOST_DEPENDENTS
  local id = call('LINDEX', key.relay_wait, -1)
  if not id then
    return false
  end
  while id and left > 0 do
    local relay = key.relays .. ':' .. id
    left = left - 1 - tell(key, arg, relay, left, now)
    if call('EXISTS', relay .. ':dependents') == 0 then
      -- Relays of jobs that it has deleted may be behind it.
      call('LREM', key.relay_wait, -1, id)
      call('UNLINK', relay, relay .. ':processed', relay .. ':failed', relay .. ':unsuccessful')
    end
    id = call('LINDEX', key.relay_wait, -1)
  end
  -- Nobody reads them.
  call('DEL', key.relay_events, key.relay_marker)
  return id and true or false
end

-- Stands for the follow-ups that are still to be added, in the children of a parent.
local FOLLOW_UPS = 'spark:follow-ups'

-- The parents that follow-ups will have, each once.
local function parents_of(key, arg, follow_ups)
  local parents, seen = {}, {}
  for _, group in ipairs(follow_ups) do
    local parent_at = chunk_parents(keys_at(key, arg, group.base), args_at(arg, group.base, group.queue), group.jobs)
    for row = 1, parent_at and group.jobs.n or 0 do
      local parent = parent_at(row)
      if parent and not seen[parent.key] then
        seen[parent.key] = true
        local keys, id = parent_of(key, arg, parent.key)
        parents[#parents + 1] = {key = parent.key, id = id, keys = keys}
      end
    end
  end
  return parents
end

local function hold(parent)
  if call('ZSCORE', parent.keys.waiting_children, parent.id) then
    call('SADD', parent.key .. ':dependencies', FOLLOW_UPS)
  end
end

-- Keeps the parents of follow-ups waiting while jobs are settled, which can be their last children. Returns a function
-- that is called with the time after the follow-ups were added.
local function hold_parents(key, arg, follow_ups)
  local parents = parents_of(key, arg, follow_ups)
  for _, parent in ipairs(parents) do
    allow_wrongtype(hold, parent)
  end

  local function release(parent, now)
    local children = parent.key .. ':dependencies'
    if call('SREM', children, FOLLOW_UPS) == 1 and call('SCARD', children) == 0 then
      release_parent(parent.keys, arg, parent.key, parent.id, parent.keys.waiting_children, now)
    end
  end

  return function(now)
    for _, parent in ipairs(parents) do
      allow_wrongtype(release, parent, now)
    end
  end
end

-- Jobs that run one after the other.

-- How many ancestors a script may still delete.
local ancestors_left = 100

-- Whether a parent is of the same queue and waits for `child_key` alone; and its id.
local function is_next_of_sequence(key, arg, child_key, parent_key)
  local base, parent_id = split_job_key(arg, parent_key)
  local children = parent_key .. ':dependencies'
  return base == arg.base and call('SCARD', children) == 1 and call('SISMEMBER', children, child_key) == 1
    and call('ZSCORE', key.waiting_children, parent_id), parent_id
end

local function cut(key, arg, job_key)
  local child_key, is_open = job_key, false
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
-- key.sequence_tails: HASH key -> the last job, packed {id, timestamp}, as another job may get its id. Entries whose jobs
-- have ended count for nothing, and are removed later.

-- How long the entries are kept after the last write, ms: longer than jobs wait.
local TAILS_TTL_MS = 400 * 86400000

-- The first byte of a packed entry. An older entry is the id of the job: text in UTF-8, which begins otherwise.
local PACKED = 0x92

-- The id of the job of an entry, unless it is gone or has ended; and the key of its parent.
local function open_tail(base, entry)
  local job_id, added_at = entry, nil
  if string.byte(entry) == PACKED then
    job_id, added_at = unpack(cmsgpack.unpack(entry))
  end
  local fields = call('HMGET', base .. job_id, 'timestamp', 'finishedOn', 'parentKey')
  if fields[1] and not fields[2] and (not added_at or added_at == fields[1]) then
    return job_id, fields[3]
  end
end

-- Removes entries of ended jobs, of `count` that are chosen at random. With twice as many as are added, there are in the
-- long run not many more of them than of others.
local function forget_ended(tails, base, count)
  local ended = {}
  local entries = call('HRANDFIELD', tails, count, 'WITHVALUES')
  for i = 1, #entries, 2 do
    if not open_tail(base, entries[i + 1]) then
      ended[#ended + 1] = entries[i]
    end
  end
  if #ended > 0 then
    call('HDEL', tails, unpack(ended))
  end
end

-- Returns two functions, or nil for a chunk without sequences:
--   follows(i, job_id, timestamp): adds a new job to the sequence of its row; returns whether it has to wait for the job
--     before it. timestamp: as its hash has it.
--   keep_tails(): stores the last jobs of the sequences, after all rows.
local function sequencer(key, arg, chunk)
  if not chunk.sequence then
    return nil
  end
  local base, tails = arg.base, key.sequence_tails
  local keys, flag = listed(chunk, 'sequence'), chunk.sequence_failure
  local stored, last, changed, new = call('HMGET', tails, unpack(keys)), {}, {}, 0
  local end_of_field = ',"queueKey":' .. cjson.encode(string.sub(base, 1, -2)) .. ',"' .. flag .. '":true}'

  -- The unfinished job before the one of a row, if any.
  local function job_before(i)
    local tail = last[keys[i]]
    if tail then
      return tail[1]
    end
    changed[#changed + 1] = keys[i]
    if not stored[i] then
      new = new + 1
      return nil
    end
    local before, parent_key = open_tail(base, stored[i])
    return not parent_key and before
  end

  local function follows(i, job_id, timestamp)
    local before = job_before(i)
    last[keys[i]] = {job_id, timestamp}
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
      entries[2 * i - 1], entries[2 * i] = name, cmsgpack.pack(last[name])
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
