-- Claims waiting jobs.
-- @include lib: claim_jobs(is_utf8 lock_durations start_limit take_passes walk_waiting) group_limits
-- @include lib: groups(group_place) jobs(job_row unfit) rescue(has_expired) values(positions_of)
-- @include lib: waiting(next_due_of)
-- @include bull/lib: events(publish) waiting(waiting_list)
-- @include {dialect}/lib: rescue(unrun_failures) waiting(delay_job leave_wait)

-- The fields of a job's hash that a claim reads. A unit test compares them with core/dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'attemptsMade', 'stalledCounter', 'progress', 'stacktrace',
  'priority', 'attempts', 'expireAt'}

-- Number of fields that are read of every job. The other one is read only while jobs of the queue can expire.
local FIELDS_OF_ALL = 10

-- Claims up to `limit` jobs of Bull; see core/queue/work/claim.py, and lib/claim_jobs.lua for `limits`.
-- `start(job_key, id)` marks a job as started and publishes it, or delays it and returns 'delayed'.
-- `held` was moved to `active` without a lock by a blocking command; it comes first, unless the stalled check has moved
-- it back.
-- Returns what work_once expects.
local function claim_jobs(key, arg, now, limit, limits, start)
  local base, held = arg.base, arg.held
  local allowed, limited_ms = start_limit.quota(key, arg, limits, limit)
  local groups = nil
  if arg.group ~= '' and allowed > 0 then
    groups = group_limits(key, arg, now, function(id, eta)
      return delay_job(key, id, eta)
    end)
  end
  if not groups and held == '' and call('EXISTS', key.wait) == 0 then
    local next_due = next_due_of(key.delayed)
    return {ids = {}, damaged = {}, limited_ms = limited_ms, next_due = next_due, more = false}, {}
  end
  local ids, rows, dropped, damaged, bytes, most_bytes = {}, {}, {}, {}, 0, tonumber(arg.most_bytes)
  local at = positions_of(CLAIM_FIELDS)
  local lock_ms = lock_durations(arg.lock_ms)
  local may_expire = call('EXISTS', key.expiry, key.expired) > 0

  -- Returns whether the job was processed: when no more may start, the next one that may stays.
  local function take(id, is_sound)
    if bytes >= most_bytes or not groups and #ids >= allowed then
      return false
    end
    local job_key = base .. id
    local row, kind = job_row(job_key, unpack(CLAIM_FIELDS, 1, FIELDS_OF_ALL))
    if not is_sound then
      row, kind = nil, 'id'
    end
    kind = row and unfit.kind_of(job_key, row, at) or kind
    if kind then
      unfit.note(key, id, kind, damaged)
      if kind == 'remnant' then
        unrun_failures(key, arg, now)(id, unfit.REMNANT)
      end
      dropped[#dropped + 1] = id
      return true
    end
    if may_expire then
      local expired, expires = has_expired(job_key, now)
      if expired then
        unrun_failures(key, arg, now)(id, 'expired')
        dropped[#dropped + 1] = id
        return true
      end
      row[at.expireAt] = expires
    end
    bytes = bytes + #(row[at.data] or '')
    if groups then
      local rank = tonumber(row[at.priority]) or 0
      rank = rank > 0 and math.min(rank, group_place.LAST_RANK - 1) or group_place.LAST_RANK
      local answer = groups.admit(#ids < allowed, id, rank, row[at.timestamp], row[at.opts], row[at.data])
      if answer == 'ready' then
        return false
      end
      if answer == 'held' then
        dropped[#dropped + 1] = id
        return true
      end
    end
    if start(job_key, id) == 'delayed' then
      return true
    end
    ids[#ids + 1], rows[#rows + 1] = id, row
    return true
  end

  local walk = walk_waiting(key, groups, take, function()
    return bytes < most_bytes and (groups or #ids < allowed)
  end)

  if held ~= '' and call('LREM', key.active, 1, held) == 1 then
    if allowed > 0 then
      take(held, is_utf8(held))
    else
      call('RPUSH', waiting_list(key), held)
    end
  end
  if allowed > #ids then
    take_passes(groups, allowed - #ids, walk.take_waiting, walk.goes_on)
  end
  if #ids > 0 then
    for i = 1, #ids do
      call('SET', base .. ids[i] .. ':lock', arg.lock_token, 'PX', lock_ms[rows[i][at.opts] or ''])
    end
    call('LPUSH', key.active, unpack(ids))
    start_limit.count(key, arg, limits, #ids)
  end
  local claimed = {
    ids = ids,
    damaged = damaged,
    limited_ms = limited_ms,
    next_due = groups and groups.next_due(next_due_of(key.delayed)) or next_due_of(key.delayed),
    more = allowed > 0 and call('EXISTS', key.wait) == 1,
  }
  leave_wait(key, ids)
  leave_wait(key, dropped)
  claimed.more = groups and groups.refill() or claimed.more
  return claimed, rows
end

-- Applies the worker's limiter to a job that is to start, as a worker of Bull 3 and 4 with the same counters does: counts
-- it, or delays it if the limit of the period is used up, or other jobs are delayed for it. With `groupKey` each group has
-- a counter, and is the part of the id behind the last colon. Returns whether the job was delayed.
local function delay_over_limit(key, arg, id, now)
  local group = arg.limiter_groups == '1' and string.match(id, '[^:]+$')
  if group == 'index' then
    -- Its counter would be the key of the index; Bull fails with such a job.
    group = nil
  end
  local counter = group and key.limiter .. ':' .. group or key.limiter
  local most, duration, limited = tonumber(arg.limiter_max), tonumber(arg.limiter_ms), counter .. ':limited'
  local delay = 0
  if call('SREM', limited, id) == 1 then
    call('HDEL', key.limiter_index, id)
  else
    local before = call('SCARD', limited)
    if before > 0 then
      -- 10 % more than the jobs before it need, as Bull adds.
      delay = before * duration * 1.1 / most + call('PTTL', counter)
    end
  end
  local started = start_limit.started(counter)
  if delay == 0 and started >= most then
    delay = call('PTTL', counter) + (started - most) * duration / most
  end
  if delay > 0 then
    call('ZADD', key.delayed, (now + delay) * 4096 + bit.band(started, 0xfff), id)
    call('PUBLISH', key.delayed, now + delay)
    call('SADD', limited, id)
    call('HSET', key.limiter_index, id, limited)
    return true
  end
  if call('INCR', counter) == 1 then
    call('PEXPIRE', counter, duration)
  end
  return false
end

-- Claims up to `limit` jobs.
local function claim_next(key, arg, now, limit, may_drain)
  local processed_on, channel = string.format('%.0f', now), arg.base .. 'active@' .. arg.token
  local limits = {delays = arg.limiter_delays == '1'}
  local claimed, rows = claim_jobs(key, arg, now, limit, limits, function(job_key, id)
    if limits.delays and delay_over_limit(key, arg, id, now) then
      return 'delayed'
    end
    call('HSET', job_key, 'processedOn', processed_on)
    publish(arg, 'active', channel, id)
  end)
  if may_drain and #claimed.ids == 0 and call('EXISTS', key.wait) == 0 then
    publish(arg, 'drained', arg.base .. 'drained', '')
  end
  return claimed, rows
end
