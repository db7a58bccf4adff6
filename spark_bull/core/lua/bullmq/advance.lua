-- Adds the next job of each job scheduler whose current job is packed. A second call for the same job changes nothing,
-- as the scheduler has advanced.
-- @returns for each job 'next', 'duplicated' (it exists), 'past' (not the current job), 'none' (no scheduler), 'unknown'
-- (no time given) or 'damaged'
-- @include lib: once(advance_once) rescue(count_up) schedules(next_job) values(finite_number time_ms)
-- @include bullmq/lib: add_jobs events(emit_trimmed major_version) schedules(next_of_every)

local now = time_ms()
local major = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version)

-- The key of a repeated job of the older kind has the form name:id:endDate:tz:pattern; a scheduler has the counter
-- `ic`.
local function is_older(scheduler, scheduler_key)
  local _, colons = string.gsub(scheduler, ':', '')
  return colons >= 4 and call('HEXISTS', scheduler_key, 'ic') == 0
end

-- The next job of a repeated job of the older kind, as `find_next` returns it.
local function find_older(job)
  local older = job.older
  if not older then
    return nil, 'unknown'
  end
  for i, member in ipairs(older.members) do
    local previous = tonumber(call('ZSCORE', key.repeats, member) or nil)
    if previous and previous ~= older.due then
      return nil, 'past'
    elseif previous then
      local id = string.format('%s%.0f', older.ids[i], older.next)
      return {
        id = id,
        ms = older.next,
        scheduler = member,
        name = job.name,
        data = call('HGET', arg.base .. job.id, 'data') or '{}',
        exists = call('EXISTS', arg.base .. id) == 1,
        older = {opts = older.opts, priority = job.priority, lifo = job.lifo, shift = older.shift},
      }
    end
  end
  return nil, 'none'
end

-- The next job, {id, ms, scheduler, scheduler_key, name, data, exists, older}; or nil and why there is none.
local function find_next(job)
  local scheduler = call('HGET', arg.base .. job.id, 'rjk')
  if not scheduler then
    return nil, 'none'
  end
  local scheduler_key = key.repeats .. ':' .. scheduler
  if is_older(scheduler, scheduler_key) then
    return find_older(job)
  end
  local previous = tonumber(call('ZSCORE', key.repeats, scheduler) or nil)
  if not previous or job.id ~= string.format('repeat:%s:%.0f', scheduler, previous) then
    return nil, 'past'
  end
  local fields = call('HMGET', scheduler_key, 'name', 'data', 'every', 'offset')
  local every = finite_number(fields[3]) or job.every
  local next_ms = job.next
  if every and every > 0 then
    next_ms = next_of_every(previous, every, finite_number(fields[4]) or job.offset or 0, now)
  end
  if not next_ms then
    return nil, 'unknown'
  end
  local id = string.format('repeat:%s:%.0f', scheduler, next_ms)
  local data = fields[2] or (major <= 5 and call('HGET', arg.base .. job.id, 'data')) or '{}'
  return {
    id = id,
    ms = next_ms,
    scheduler = scheduler,
    scheduler_key = scheduler_key,
    name = fields[1] or job.name,
    data = data,
    exists = call('EXISTS', arg.base .. id) == 1,
  }
end

local function add_next(job, found)
  if found.exists then
    emit_trimmed(key, arg, 'duplicated', 'jobId', found.id)
    return 'duplicated'
  end
  local older = found.older
  call('ZADD', key.repeats, found.ms, found.scheduler)
  if not older then
    count_up(found.scheduler_key, 'ic')
  end
  if not older and major <= 5 and found.data ~= '{}' then
    call('HSET', found.scheduler_key, 'data', found.data)
  end
  local run_at = found.ms + (older and older.shift or 0)
  add_jobs(key, arg, next_job(older or job, found.id, run_at, found.name, found.data), 1, now)
  local job_key = arg.base .. found.id
  call('HSET', job_key, 'rjk', found.scheduler)
  if job.deduplication_id then
    call('HSET', job_key, 'deid', job.deduplication_id)
  end
  if not older and major <= 5 then
    call('HSET', arg.base .. job.id, 'nrjid', found.id)
  end
  return 'next'
end

-- A scheduler whose key has a wrong type must not stop the others.
local function advance(job)
  local is_sound, found, why = pcall(find_next, job)
  if not is_sound then
    local message = type(found) == 'table' and found.err or tostring(found)
    if not string.find(message, 'WRONGTYPE', 1, true) then
      error(found)
    end
    return 'damaged'
  end
  return found and add_next(job, found) or why
end

return advance_once(key, arg, advance)
