-- Claims waiting jobs.
-- @include lib: claim_jobs(lock_durations start_limit take_passes walk_waiting) events(is_written) group_limits
-- @include lib: jobs(job_row unfit) values(finite_number number_texts positions_of whole_number)
-- @include lib: waiting(next_due_of)
-- @include bullmq/lib: claim_jobs(CLAIM_FIELDS claim_row) events(emit major_version)
-- @include bullmq/lib: waiting(hold_job mark_held promote_due_jobs)

-- The fields of a job's hash that a claim reads. A unit test compares them with core/dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'priority', 'ats', 'atm', 'parentKey', 'defa', 'stc',
  'progress', 'stacktrace', 'expireAt'}

-- The fields that every new job has: the first five of CLAIM_FIELDS and `delay`. Only a job with another number of
-- fields can have the others, which take Redis longer to look for than to count.
local FIELDS_OF_NEW_JOBS = 6
local A, B, C, D, PRIORITY = unpack(CLAIM_FIELDS)

-- The values of CLAIM_FIELDS of one job, false or nil for a field that it lacks, and for the priority 0 of a new job;
-- and whether it may have more than the first four; the second value is 'remnant' for what is left of a removed job,
-- which gets a deferred failure. Nil and 'none' when the job is gone; nil and the type of its key when that is no hash.
local function claim_row(job_key, at, prioritized)
  -- Not by job_row: its `...` and a check of a sound row take Redis 1.5 % of a claim and its settlement.
  local plain = prioritized and redis.pcall('HMGET', job_key, A, B, C, D, PRIORITY)
    or redis.pcall('HMGET', job_key, A, B, C, D)
  if plain[1] and call('HLEN', job_key) == FIELDS_OF_NEW_JOBS then
    return plain, nil, prioritized
  end
  local row, kind = job_row(job_key, unpack(CLAIM_FIELDS))
  kind = row and unfit.kind_of(job_key, row, at) or kind
  if not row or kind == 'none' then
    return nil, kind
  elseif kind then
    call('HSETNX', job_key, 'defa', unfit.REMNANT)
    row[at.defa] = row[at.defa] or unfit.REMNANT
  end
  return row, kind, true
end

-- Locks claimed jobs and marks them as started. A loop for each command takes less time than one with all of them.
local function mark_started(key, arg, ids, keys, rows, at, now)
  local token, lock_ms, text = arg.lock_token, lock_durations(arg.lock_ms), number_texts()
  local opts, ats, are_plain, events = at.opts, at.ats, rows.same, key.events
  for i = 1, #ids do
    call('SET', keys[i] .. ':lock', token, 'PX', lock_ms[rows[i][opts] or ''])
  end
  local worker, processed_on, started = arg.worker, string.format('%.0f', now), '1'
  for i = 1, #ids do
    if not are_plain then
      local before = rows[i][ats]
      started = before and text[whole_number(before) + 1] or '1'
      rows[i][ats] = started
    end
    if worker == '' then
      call('HSET', keys[i], 'processedOn', processed_on, 'ats', started)
    else
      call('HSET', keys[i], 'processedOn', processed_on, 'pb', worker, 'ats', started)
    end
  end
  for i = 1, is_written(arg, 'active') and #ids or 0 do
    call('XADD', events, '*', 'event', 'active', 'jobId', ids[i], 'prev', 'waiting')
  end
end

-- The values of the fields that are not in the rows of jobs that have no more than these; see claim_row.
local function values_without(row)
  local values = {}
  for i = #row + 1, #CLAIM_FIELDS do
    values[CLAIM_FIELDS[i]] = false
  end
  values.ats = '1'
  return values
end

-- Claims up to `limit` jobs: waiting ones, then prioritized ones; see core/queue/work/claim.py. A job that has expired gets
-- a deferred failure. The claim ends before a job whose child it has claimed: that job needs the result of its child.
-- Returns what work_once expects (`rows.same`: see collapsed), and whether a pause or a limit of the queue keeps jobs
-- from starting.
local function claim_jobs(key, arg, now, limit)
  local base = arg.base
  local meta = call('HMGET', key.meta, 'paused', 'concurrency', 'max', 'duration')
  local limits = {
    paused = meta[1],
    concurrency = finite_number(meta[2]),
    max = finite_number(meta[3]),
    duration = finite_number(meta[4]),
  }
  local paused_or_full = limits.paused or (limits.concurrency and call('LLEN', key.active) >= limits.concurrency)
  local allowed, limited_ms = start_limit.quota(key, arg, limits, limit)
  local highest, groups = {}, nil
  if arg.group ~= '' and allowed > 0 then
    groups = group_limits(key, arg, now, function(id, eta)
      call('HSET', base .. id, 'delay', string.format('%.0f', eta - now))
      return hold_job(key, highest, id, eta)
    end)
  end
  local next_due = limit > 0 and promote_due_jobs(key, arg, now, math.max(limit, 100))
  if not groups and call('EXISTS', key.wait, key.prioritized) == 0 then
    if allowed > 0 then
      call('DEL', key.pc)
    end
    return {ids = {}, damaged = {}, limited_ms = limited_ms, next_due = next_due, more = false}, {},
      paused_or_full or limited_ms > 0
  end
  local ids, keys, rows, damaged, taken, bytes, deferred, are_plain = {}, {}, {}, {}, 0, 0, 0, true
  local at, parents = positions_of(CLAIM_FIELDS), {}
  local at_data, most_bytes = at.data, tonumber(arg.most_bytes)

  -- Gives a job that has expired a deferred failure. One that has started before can't expire any more.
  local function expire(row, job_key)
    local expires = row[at.expireAt]
    if expires and (row[at.ats] or (tonumber(expires) or math.huge) <= now) then
      call('HDEL', job_key, 'expireAt')
      row[at.expireAt] = false
      if not (row[at.ats] or row[at.defa]) then
        row[at.defa] = 'expired'
        call('HSET', job_key, 'defa', 'expired')
      end
    end
  end

  local most = groups and math.huge or allowed

  -- Returns whether the job was processed: when no more may start, the next one that may stays.
  local function take(id, is_sound, prioritized)
    local job_key = base .. id
    if taken >= most or bytes >= most_bytes or parents[job_key] then
      return false
    end
    local row, kind, may_have_more = claim_row(job_key, at, prioritized)
    if not is_sound then
      row, kind = nil, 'id'
    end
    if not row then
      unfit.note(key, id, kind, damaged)
      return true
    end
    bytes = bytes + #(row[at_data] or '')
    if may_have_more then
      expire(row, job_key)
    end
    -- A job that fails without being run is in no group.
    if groups then
      local may_start = taken < allowed
      local answer = row[at.defa] and (may_start and 'started' or 'ready') or groups.admit(may_start, id,
        whole_number(row[at.priority]), row[at.timestamp], row[at.opts], row[at.data])
      if answer ~= 'started' then
        return answer == 'held'
      end
    end
    if kind then
      unfit.note(key, id, kind, damaged)
    end
    taken = taken + 1
    ids[taken], keys[taken], rows[taken] = id, job_key, row
    if may_have_more then
      are_plain = false
      deferred = deferred + (row[at.defa] and 1 or 0)
      if row[at.parentKey] then
        parents[row[at.parentKey]] = true
      end
    end
    return true
  end

  local walk = walk_waiting(key, groups, take, function()
    return bytes < most_bytes and taken < most
  end)

  local function take_prioritized(count)
    local prioritized = call('ZRANGE', key.prioritized, 0, count - 1)
    local processed = walk.take_of(prioritized, 1, 1, true)
    if processed > 0 then
      call('ZREM', key.prioritized, unpack(prioritized, 1, processed))
    end
    if processed == #prioritized and #prioritized < count and taken < allowed then
      call('DEL', key.pc)
    end
    return #prioritized < count
  end

  if allowed > 0 and take_passes(groups, allowed, walk.take_waiting, walk.goes_on) then
    take_passes(groups, allowed, take_prioritized, walk.goes_on)
  end
  if taken > 0 then
    rows.same = are_plain and values_without(rows[1]) or nil
    mark_started(key, arg, ids, keys, rows, at, now)
    call('LPUSH', key.active, unpack(ids))
    -- BullMQ 6 does not count jobs that fail without being run.
    local is_5 = deferred > 0 and major_version(call('HGET', key.meta, 'version') or '', arg.bullmq_version) <= 5
    start_limit.count(key, arg, limits, is_5 and #ids or #ids - deferred)
  end
  if groups then
    if next(highest) then
      mark_held(key)
    end
    groups.refill()
    next_due = groups.next_due(next_due_of(key.delayed))
  end
  local left = call('EXISTS', key.wait, key.prioritized) > 0
  if left and not paused_or_full and limited_ms == 0 then
    call('ZADD', key.marker, '0', '0')
  end
  return {ids = ids, damaged = damaged, limited_ms = limited_ms, next_due = next_due, more = left and allowed > 0}, rows,
    paused_or_full or limited_ms > 0
end

-- Claims up to `limit` jobs. As in Node, there is no event "drained" when a pause or a limit of the queue kept the call
-- from claiming.
local function claim_next(key, arg, now, limit, may_drain)
  local claimed, rows, is_held = claim_jobs(key, arg, now, limit)
  if may_drain and #claimed.ids == 0 and not claimed.next_due and not (limit > 0 and is_held)
    and call('EXISTS', key.wait, key.active, key.prioritized) == 0 then
    emit(key, arg, 'drained')
  end
  return claimed, rows
end
