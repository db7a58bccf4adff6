-- @include bull/lib/claim_fields
-- @include bull/lib/waiting_list
-- @include lib/claim_quota
-- @include lib/job_row
-- @include lib/next_due_of
-- @include lib/positions_of
-- @include lib/set_aside

-- Claims up to `limit` jobs of Bull; see queue/claim.py. `start(job_key, id)` marks a job as started and publishes it.
-- `held` was moved to `active` without a lock by a blocking command; it comes first, unless the stalled check has moved
-- it back.
-- Returns what work_once expects, and the ids that were dropped because their jobs are gone.
local function claim_jobs(key, arg, limit, start)
  local call, base, held = redis.call, arg.base, arg.held
  local allowed, limited_ms = claim_quota(key, arg, {}, limit)
  local ids, rows, dropped, damaged, bytes, most_bytes = {}, {}, {}, {}, 0, tonumber(arg.most_bytes)
  local at = positions_of(CLAIM_FIELDS)

  local function take(id)
    local job_key = base .. id
    local row, kind = job_row(job_key, unpack(CLAIM_FIELDS))
    if not row or not (row[at.timestamp] or row[at.data]) then
      if kind then
        set_aside(key, id, kind)
        damaged[#damaged + 1] = {id, kind}
      end
      dropped[#dropped + 1] = id
      return
    end
    call('SET', job_key .. ':lock', arg.lock_token, 'PX', arg.lock_ms)
    start(job_key, id)
    ids[#ids + 1], rows[#rows + 1] = id, row
    bytes = bytes + #(row[at.data] or '')
  end

  if held ~= '' and call('LREM', key.active, 1, held) == 1 then
    if allowed > 0 then
      take(held)
    else
      call('RPUSH', waiting_list(key), held)
    end
  end
  if allowed > #ids then
    local waiting = call('LRANGE', key.wait, #ids - allowed, -1)
    local processed = 0
    while processed < #waiting and bytes < most_bytes do
      take(waiting[#waiting - processed])
      processed = processed + 1
    end
    if processed > 0 then
      call('LTRIM', key.wait, 0, -processed - 1)
    end
  end
  if #ids > 0 then
    call('LPUSH', key.active, unpack(ids))
    count_started(key, arg, {}, #ids)
  end
  return {
    ids = ids,
    damaged = damaged,
    limited_ms = limited_ms,
    next_due = next_due_of(key.delayed),
    more = allowed > 0 and call('EXISTS', key.wait) == 1,
  }, rows, dropped
end
