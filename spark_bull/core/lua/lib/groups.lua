-- The groups of jobs, and what a group has of its own.
-- @include lib: json(json_of)

-- What a group has of its own: {name, max, duration_ms, concurrency, paused, rests_until}, all optional; {} for nothing.
-- Also returns its member of the ZSET `group_own`: its digits and this record, packed. All members have one score, so
-- that they are read in the order of the digits.
local function group_record(key, group)
  local member = redis.call('ZRANGEBYLEX', key.group_own, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
  return member and cmsgpack.unpack(string.sub(member, #group + 1)) or {}, member
end

-- Replaces what a group has of its own; see group_record.
local function save(key, group, own)
  local _, member = group_record(key, group)
  if member then
    redis.call('ZREM', key.group_own, member)
  end
  if own.max or own.concurrency or own.paused or own.rests_until then
    redis.call('ZADD', key.group_own, 0, group .. cmsgpack.pack(own))
  end
end

local group_own = {of = group_record, save = save}

-- Groups whose delayed jobs may start at a time that no counter has: after a rest, or after a pause or a limit was
-- removed. They are in the ZSET `group_checks`: group -> when a claim promotes delayed jobs of it again.

-- Groups that one call checks, and after how long it checks them again while they have delayed jobs, ms.
local MAX_DUE, AGAIN_MS = 100, 30000

-- Removes the groups that are due, and rests that are over; returns the groups.
local function take_due(key, now)
  local due = redis.call('ZRANGEBYSCORE', key.group_checks, '-inf', now, 'LIMIT', 0, MAX_DUE)
  for _, group in ipairs(due) do
    redis.call('ZREM', key.group_checks, group)
    local own = group_own.of(key, group)
    if own.rests_until and own.rests_until <= now then
      own.rests_until = nil
      group_own.save(key, group, own)
    end
  end
  return due
end

-- Plans the next check of a group, if it rests, or has delayed jobs and is not paused.
local function plan_next(key, group, now)
  local own = group_own.of(key, group)
  local is_delayed = redis.call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. group .. '\255') > 0
  local at = own.rests_until or is_delayed and not own.paused and now + AGAIN_MS
  if at then
    redis.call('ZADD', key.group_checks, at, group)
  else
    redis.call('ZREM', key.group_checks, group)
  end
end

local group_checks = {take_due = take_due, plan_next = plan_next}

-- The groups that this call has met: name -> digits.
local digits_of = {}

-- The 16 digits that stand for the name of a group in keys: a hash, which is also an integer that the score of a ZSET
-- holds exactly.
local function group_digits(name)
  if not digits_of[name] then
    digits_of[name] = string.format('%016.0f', tonumber(string.sub(redis.sha1hex(name), 1, 13), 16))
  end
  return digits_of[name]
end

-- The value at a path of names in a JSON object, as a text; nil for none, and for one that is no text or number.
local function value_at(text, path)
  local value = json_of(text)
  for _, name in ipairs(path) do
    if type(value) ~= 'table' then
      return nil
    end
    value = value[name]
  end
  if type(value) == 'number' then
    return string.format('%.17g', value)
  end
  return type(value) == 'string' and value or nil
end

-- The name of the group of a job, `opts.group.id` or else the value at `path` in its payload; nil for none.
local function name_of(path, opts, data)
  local group = opts and string.find(opts, '"group"', 1, true) and value_at(opts, {'group', 'id'})
  return group or data and value_at(data, path)
end

-- The same of a job by its key, and the length of its payload.
local function name_of_job(path, job_key)
  local row = redis.pcall('HMGET', job_key, 'opts', 'data')
  if row.err then
    return nil, 0
  end
  return name_of(path, row[1], row[2]), #(row[2] or '')
end

local group_name = {of = name_of, of_job = name_of_job}
