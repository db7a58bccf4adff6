-- @include bullmq/lib/claim_row
-- @include bullmq/lib/hold_job
-- @include bullmq/lib/major_version
-- @include bullmq/lib/promote_due_jobs
-- @include bullmq/lib/promote_group
-- @include bullmq/lib/waits_or_prioritized
-- @include lib/claim_quota
-- @include lib/group_limits
-- @include lib/has_expired
-- @include lib/lock_durations
-- @include lib/next_due_of
-- @include lib/number_texts
-- @include lib/positions_of
-- @include lib/set_aside
-- @include lib/walk_waiting
-- @include lib/whole_number

-- Claims up to `limit` jobs: waiting ones, then prioritized ones; see queue/claim.py. Returns what work_once expects,
-- and whether a pause or a limit of the queue keeps jobs from starting.
local function claim_jobs(key, arg, now, limit)
  local call, base, worker = redis.call, arg.base, arg.worker
  local meta = call('HMGET', key.meta, 'paused', 'concurrency', 'max', 'duration')
  local limits = {
    paused = meta[1],
    concurrency = tonumber(meta[2]),
    max = tonumber(meta[3]),
    duration = tonumber(meta[4]),
  }
  local paused_or_full = limits.paused or (limits.concurrency and call('LLEN', key.active) >= limits.concurrency)
  local allowed, limited_ms = claim_quota(key, arg, limits, limit)
  local ids, rows, damaged, taken, bytes, deferred = {}, {}, {}, 0, 0, 0
  local most_bytes, text, processed_on = tonumber(arg.most_bytes), number_texts(), string.format('%.0f', now)
  local token, lock_ms_of, events = arg.lock_token, lock_durations(arg.lock_ms), key.events
  local at, highest = positions_of(CLAIM_FIELDS), {}
  local groups = group_limits(key, arg, allowed, now, waits_or_prioritized, function(id, eta)
    call('HSET', base .. id, 'delay', string.format('%.0f', eta - now))
    return hold_job(key, highest, id, eta)
  end, function(ready)
    promote_group(key, arg, ready)
  end)
  local may_expire = call('EXISTS', key.expiry) == 1
  local next_due = limit > 0 and promote_due_jobs(key, arg, now, math.max(limit, 100))

  -- Returns whether the job was processed: when no more may start, the next one that may stays.
  local function take(id, prioritized)
    local row, kind = claim_row(base, id, at, prioritized)
    if not row then
      if kind then
        set_aside(key, id, kind)
        damaged[#damaged + 1] = {id, kind}
      end
      return true
    end
    bytes = bytes + #(row[at.data] or '')
    if may_expire and not row[at.defa] and has_expired(base .. id, 'processedOn', now) then
      row[at.defa] = 'expired'
      call('HSET', base .. id, 'defa', 'expired')
    end
    -- A job that fails without being run is in no group.
    if groups then
      local may_start = taken < allowed
      local answer = row[at.defa] and (may_start and 'started' or 'ready') or groups.admit(may_start, id,
        tonumber(row[at.priority]) or 0, row[at.timestamp], row[at.opts], row[at.data])
      if answer ~= 'started' then
        return answer == 'held'
      end
    end
    local job_key, started = base .. id, row[at.ats] and text[whole_number(row[at.ats]) + 1] or '1'
    row[at.ats] = started
    call('SET', job_key .. ':lock', token, 'PX', lock_ms_of(row[at.opts]))
    if worker == '' then
      call('HSET', job_key, 'processedOn', processed_on, 'ats', started)
    else
      call('HSET', job_key, 'processedOn', processed_on, 'pb', worker, 'ats', started)
    end
    call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    taken = taken + 1
    ids[taken], rows[taken] = id, row
    if row[at.defa] then
      deferred = deferred + 1
    end
    return true
  end

  local walk = walk_waiting(key, groups, take, function()
    return bytes < most_bytes and (groups or taken < allowed)
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
  if #ids > 0 then
    call('LPUSH', key.active, unpack(ids))
    -- BullMQ 6 does not count jobs that fail without being run.
    local is_5 = deferred > 0 and major_version(call('HGET', key.meta, 'version') or '', arg.bullmq_version) <= 5
    count_started(key, arg, limits, is_5 and #ids or #ids - deferred)
  end
  if groups then
    if next(highest) then
      mark_held(key)
    end
    groups.refill()
    next_due = groups.next_due(next_due_of(key.delayed))
  end
  local left = call('LLEN', key.wait) + call('ZCARD', key.prioritized) > 0
  if left and not paused_or_full and limited_ms == 0 then
    call('ZADD', key.marker, 0, '0')
  end
  return {ids = ids, damaged = damaged, limited_ms = limited_ms, next_due = next_due, more = left and allowed > 0}, rows,
    paused_or_full or limited_ms > 0
end
