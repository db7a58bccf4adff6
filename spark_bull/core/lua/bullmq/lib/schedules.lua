-- Job schedulers and their next jobs.
-- @include lib: jobs(job_row) schedules(next_job) waiting(WALK_STEPS)
-- @include bullmq/lib: add_jobs deduplication(free_deduplication) flows(unlink_job) waiting(waiting_list)

-- When the first job of a scheduler with an interval is due, ms: at its start, else at the next multiple of the
-- interval, shifted by `offset`, else at once.
local function first_of_every(every, offset, start, now)
  if start then
    return math.floor(math.max(start, now))
  end
  if offset == 0 then
    return now
  end
  local next_ms = math.floor(now / every) * every + offset
  if next_ms <= now then
    next_ms = next_ms + every
  end
  return math.floor(next_ms)
end

-- When a scheduler's next job is due, ms: one interval after the previous one; if that has passed, at the next multiple
-- of the interval, shifted by `offset`.
local function next_of_every(previous, every, offset, now)
  local next_ms = previous + every
  if next_ms < now then
    next_ms = math.floor(now / every) * every + offset
    if next_ms <= now then
      next_ms = next_ms + every
    end
  end
  return math.floor(next_ms)
end

-- How many delayed jobs are searched for the next one of an older repeatable job.
local SEARCHED = 1000

-- The id of the next job of a scheduler, if that is delayed. The jobs of a repeatable job of BullMQ 5.9 and older, whose
-- member has the form name:id:endDate:tz:pattern, have ids that the member does not show.
local function next_job_of(key, arg, member, next_ms)
  local ending = ':' .. next_ms
  local id = 'repeat:' .. member .. ending
  local _, colons = string.gsub(member, ':', '')
  if colons < 4 or call('ZSCORE', key.delayed, id) then
    return id
  end
  local first = string.format('%.0f', tonumber(next_ms) * 4096)
  for _, job_id in ipairs(call('ZRANGEBYSCORE', key.delayed, first, '+inf', 'LIMIT', 0, SEARCHED)) do
    if job_id:sub(-#ending) == ending and call('HGET', arg.base .. job_id, 'rjk') == member then
      return job_id
    end
  end
  return id
end

-- How many times in a row may be taken by jobs of an earlier scheduler of this id.
local MAX_TAKEN = 32

-- Removes the next job of a scheduler, unless a worker has claimed it. Returns whether it did, and how many entries of
-- the list of waiting jobs it may have searched.
local function withdraw(key, arg, job_id, list)
  local job_key = arg.base .. job_id
  if call('EXISTS', job_key) == 0 then
    return false, 0
  end
  local removed = call('ZREM', key.delayed, job_id) + call('ZREM', key.prioritized, job_id) > 0
  local steps = removed and 0 or call('LLEN', list)
  if not removed and call('LREM', list, 1, job_id) == 0 then
    return false, steps
  end
  free_deduplication(arg.base, job_id, call('HGET', job_key, 'deid'))
  unlink_job(job_key)
  return true, steps
end

-- Creates or changes the job schedulers of a chunk from row `from` on: all of them, or as many as one script can search
-- the waiting jobs for. A scheduler that exists keeps the time of its next job, unless its interval or pattern differs.
-- One replaces the older repeatable jobs with its id.
-- Returns {next = first row not processed, added, duplicates, due, rejected}. `due`: when the next jobs are due, ms, 0
-- for those that are rejected. `rejected`: {row, id of the job that exists}: the next job can't be added, and nothing
-- was changed.
local function upsert_schedules(key, arg, chunk, from, now)
  local list = waiting_list(key, arg.bullmq_version)
  local steps, due, rejected, i = 0, {}, {}, from

  local function exists(job_id)
    return call('EXISTS', arg.base .. job_id) == 1
  end

  -- Returns when the next job is due; or nil, and the id of the job that prevents it.
  local function upsert(row)
    local scheduler_key = key.repeats .. ':' .. row.id
    local function id_at(ms)
      return string.format('repeat:%s:%.0f', row.id, ms)
    end
    local previous = tonumber(call('ZSCORE', key.repeats, row.id) or nil)
    local kept = call('HMGET', scheduler_key, 'every', 'offset', 'ic')
    if row.next and row.next ~= previous and exists(id_at(row.next)) then
      return nil, id_at(row.next)
    end
    local removed, searched
    if previous then
      removed, searched = withdraw(key, arg, next_job_of(key, arg, row.id, string.format('%.0f', previous)), list)
      steps = steps + searched
    end
    local next_ms, offset = row.next, row.offset or 0
    if row.every then
      local same = previous and tonumber(kept[1] or nil) == row.every
      if removed and same then
        next_ms = previous
      elseif same then
        next_ms = next_of_every(previous, row.every, offset, now)
      else
        next_ms = first_of_every(row.every, offset, row.start, now)
      end
      if offset == 0 then
        offset = next_ms % row.every
      end
      local taken = 0
      while taken < MAX_TAKEN and exists(id_at(next_ms)) do
        taken, next_ms = taken + 1, next_ms + row.every
      end
    end
    if exists(id_at(next_ms)) then
      return nil, id_at(next_ms)
    end
    if removed then
      offset = row.offset or tonumber(kept[2] or nil)
    end
    for _, old in ipairs(row.replaces or {}) do
      local member, old_ms = old[1], call('ZSCORE', key.repeats, old[1])
      if old_ms then
        local _, walked = withdraw(key, arg, next_job_of(key, arg, member, old_ms), list)
        steps = steps + walked
        call('ZREM', key.repeats, member)
        call('DEL', key.repeats .. ':' .. member)
      end
    end
    call('ZADD', key.repeats, next_ms, row.id)
    call('DEL', scheduler_key)
    call('HSET', scheduler_key, 'ic', kept[3] or 1, unpack(row.fields))
    if offset then
      call('HSET', scheduler_key, 'offset', string.format('%.0f', offset))
    end
    add_jobs(key, arg, next_job(row, id_at(next_ms), next_ms, row.name, row.data), 1, now)
    call('HSET', arg.base .. id_at(next_ms), 'rjk', row.id)
    return next_ms
  end

  while i <= chunk.n and (steps <= WALK_STEPS or i == from) do
    local next_ms, taken = upsert(chunk.schedules[i])
    due[#due + 1] = next_ms or 0
    if taken then
      rejected[#rejected + 1] = {i, taken}
    end
    i = i + 1
  end
  return {next = i, added = i - from - #rejected, duplicates = 0, due = due, rejected = rejected}
end

-- Whether a job is the next one of a job scheduler, which needs it.
local function is_scheduled_job(key, arg, job_id)
  local row = job_row(arg.base .. job_id, 'rjk')
  local scheduler = row and row[1]
  local next_ms = scheduler and call('ZSCORE', key.repeats, scheduler)
  return next_ms and job_id:sub(-#next_ms - 1) == ':' .. next_ms
end
