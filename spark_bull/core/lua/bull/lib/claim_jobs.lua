-- @include lib: group_limits group_place has_expired is_utf8 job_row lock_durations next_due_of positions_of
-- @include lib: start_limit take_passes unfit walk_waiting
-- @include bull/lib: waiting_list
-- @include {dialect}/lib: claim_fields(CLAIM_FIELDS) delay_job leave_wait unrun_failures

-- Number of fields that are read of every job. The other one is read only while jobs of the queue can expire.
local FIELDS_OF_ALL = 10

-- Claims up to `limit` jobs of Bull; see core/queue/work/claim.py, and see lib/start_limit.lua for `limits`.
-- `start(job_key, id)` marks a job as started and publishes it, or delays it and returns 'delayed'.
-- `held` was moved to `active` without a lock by a blocking command; it comes first, unless the stalled check has moved
-- it back.
-- Returns what work_once expects.
local function claim_jobs(key, arg, now, limit, limits, start)
  local call, base, held = redis.call, arg.base, arg.held
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
