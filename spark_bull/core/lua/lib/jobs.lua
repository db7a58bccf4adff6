-- What the keys of a queue have of a job.

-- The values of fields of a job's hash, false for none. Nil and the type of the key when that is not a hash: the type
-- is read only after HMGET has failed, so that intact jobs cost no more calls.
local function job_row(job_key, ...)
  local row = redis.pcall('HMGET', job_key, ...)
  if not row.err then
    return row
  end
  local kind = redis.call('TYPE', job_key).ok
  if kind ~= 'hash' then
    return nil, kind
  end
  return redis.call('HMGET', job_key, ...)
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
