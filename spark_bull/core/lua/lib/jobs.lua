-- What the keys of a queue have of a job, also when they are damaged or of another queue.
-- @include lib: jobs(is_job)

-- The values of fields of a job's hash, false for none. Nil and the type of the key when that is not a hash: the type
-- is read only after HMGET has failed, so that intact jobs cost no more calls.
local function job_row(job_key, ...)
  local row = redis.pcall('HMGET', job_key, ...)
  if not row.err then
    return row
  end
  local kind = call('TYPE', job_key).ok
  if kind ~= 'hash' then
    return nil, kind
  end
  return call('HMGET', job_key, ...)
end

-- When a job was added, ms, or nil.
local function added_at(job_key)
  local row = job_row(job_key, 'timestamp')
  return row and tonumber(row[1])
end

-- When a job ended, else when it started, else when it was added, ms, or nil.
local function last_seen(job_key)
  local times = job_row(job_key, 'finishedOn', 'processedOn', 'timestamp')
  return times and tonumber(times[1] or times[2] or times[3])
end

-- Fields that only jobs have, and fields that other hashes of a queue have, too.
local OF_JOBS = {'timestamp', 'delay', 'priority', 'attemptsMade', 'atm', 'ats', 'attempts', 'stalledCounter', 'stc',
  'returned', 'progress', 'returnvalue', 'failedReason', 'stacktrace', 'processedOn', 'finishedOn', 'pb', 'parentKey',
  'deid', 'rjk', 'defa'}
local SHARED = {'data', 'name', 'opts'}

local function has_any(row)
  for _, value in ipairs(row) do
    if value then
      return true
    end
  end
  return false
end

-- Whether an id belongs to a job: its key is a hash with some field of a job. What is left of a removed one is a job,
-- too: the libraries write to jobs that others have removed, and list, retry and remove what that makes. `alone`: whether
-- the id comes from the name of a key; with ':' it may belong to a job scheduler.
local function is_job(base, id, alone)
  local row = job_row(base .. id, unpack(OF_JOBS))
  if not row then
    return false
  end
  return has_any(row) or not (alone or string.find(id, ':', 1, true)) and has_any(job_row(base .. id, unpack(SHARED)))
end

-- Reads fields of jobs, in the order of `ids` from position `from` on, until there are `most` jobs or the values reach
-- `most_bytes`. The first field must be `timestamp`. Missing jobs, and keys that are not hashes, are left out.
-- Returns {ids = of the jobs that exist, values = job after job, false for none}, first position not read.
local function job_fields(base, ids, from, fields, most, most_bytes)
  local width = #fields
  local found, values, bytes = {}, {}, 0
  local position = from
  while position <= #ids and #found < most and bytes < most_bytes do
    local job_id = ids[position]
    local row = job_row(base .. job_id, unpack(fields))
    if row and (row[1] or is_job(base, job_id)) then
      found[#found + 1] = job_id
      local offset = (#found - 1) * width
      for i = 1, width do
        local value = row[i]
        values[offset + i] = value
        if value then
          bytes = bytes + #value
        end
      end
    end
    position = position + 1
  end
  return {ids = found, values = values}, position
end

-- The id that a job keeps in another queue: numbers belong to its queue.
local function id_there(change)
  return not string.match(change.id, '^%d+$') and change.id or nil
end

-- Jobs that can't run, or that no state has.

-- Records the id of a job whose key is not a hash but of another type (`kind`), or whose id is not UTF-8 ('id'). Such a
-- job can neither run nor fail, and is in no state.
local function set_aside(key, job_id, kind)
  call('HSET', key.damaged, job_id, kind)
end

local function lose_damaged(key, job_id, kind, lost)
  set_aside(key, job_id, kind)
  lost[#lost + 1] = {job_id, 'damaged'}
end

-- Why a job fails of which only fields are left that workers have written since it was removed.
local REMNANT = 'expected the payload of the job, found only what workers have written since it was removed'

-- Why a job can't run of which a claim has read this row, or nil: 'none' if it is gone, 'remnant' if it has neither a
-- payload nor the time at which it was added.
local function kind_of(job_key, row, at)
  if row[at.timestamp] or row[at.data] then
    return nil
  end
  return call('EXISTS', job_key) == 1 and 'remnant' or 'none'
end

-- Adds a job that can't run to `damaged`, as {id, kind}. An id that begins with '0:' is a mark of BullMQ 4, not a job.
local function note(key, job_id, kind, damaged)
  if kind == 'none' and string.sub(job_id, 1, 2) == '0:' then
    return
  end
  if kind ~= 'none' and kind ~= 'remnant' then
    set_aside(key, job_id, kind)
  end
  damaged[#damaged + 1] = {job_id, kind}
end

local unfit = {kind_of = kind_of, note = note, REMNANT = REMNANT}

-- The commands that return whether a ZSET or SET has a member.
local MEMBER_OF = {zset = 'ZSCORE', set = 'SISMEMBER'}

-- Returns a function that tells whether a key is a job that none of those states has that are ZSETs or SETs, and that is
-- not recorded as damaged.
local function unplaced_test(key, arg)
  local sorted = {}
  for _, state_key in ipairs(key.states) do
    local command = MEMBER_OF[call('TYPE', state_key).ok]
    if command then
      sorted[#sorted + 1] = {command, state_key}
    end
  end
  return function(job_id)
    if not is_job(arg.base, job_id, true) or call('HEXISTS', key.damaged, job_id) == 1 then
      return false
    end
    for _, state in ipairs(sorted) do
      local found = call(state[1], state[2], job_id)
      if found and found ~= 0 then
        return false
      end
    end
    return true
  end
end

-- Keys and arguments of other queues.

-- The arguments of `arg`, for the queue of this name, whose keys start with `base`.
local function args_at(arg, base, queue)
  if base == arg.base then
    return arg
  end
  local args = {}
  for name, value in pairs(arg) do
    args[name] = value
  end
  args.base, args.queue = base, queue
  return args
end

-- The keys of `key` that have names, for the queue whose keys start with `base`.
local function keys_at(key, arg, base)
  if base == arg.base then
    return key
  end
  local keys = {}
  for name, full in pairs(key) do
    if type(full) == 'string' then
      keys[name] = base .. string.sub(full, #arg.base + 1)
    end
  end
  return keys
end

-- The ends of the keys of a parent of calls: its hash; the calls that are pending; values, reasons and details of those
-- that have ended; the calls whose jobs are kept when they end.
local CALL_KEYS = {'', ':dependencies', ':processed', ':failed', ':details', ':kept'}

-- Fails a script, before it has changed anything, because of keys that have another type than its dialect has there, or
-- because of `why`, for which their types could not be read. `expected`: the types of keys. Redis would end the script
-- half way, when a job may have left one state and not come to another.
local function check_types(expected, why)
  for name, kind in pairs(expected) do
    local found = call('TYPE', name).ok
    if found ~= kind and found ~= 'none' then
      error('WRONGTYPE expected ' .. name .. ' to be a ' .. kind .. ', found a ' .. found, 0)
    end
  end
  error(why, 0)
end
