-- @include bull/lib/claim_jobs
-- @include bull/lib/leave_limiter
-- @include bull/lib/limit_group
-- @include bull/lib/promote_group
-- @include bull/lib/unrun_failures

-- Deletes what Bull stores about waiting jobs outside of their list.
local function leave_wait(key, ids)
  if #ids > 0 then
    redis.call('ZREM', key.priority, unpack(ids))
    leave_limiter(key, ids)
  end
end

-- Claims up to `limit` jobs.
local function claim_next(key, arg, now, limit, may_drain)
  local call = redis.call
  local processed_on, channel = string.format('%.0f', now), arg.base .. 'active@' .. arg.token
  local limits = {of_groups = arg.limiter_groups == '1'}
  local claimed, rows, dropped, groups = claim_jobs(key, arg, now, limit, limits, function(job_key, id)
    if limits.of_groups and limit_group(key, arg, id, now) then
      return 'delayed'
    end
    call('HSET', job_key, 'processedOn', processed_on)
    call('PUBLISH', channel, id)
  end, function(ids)
    promote_group(key, arg, ids)
  end, 'processedOn', function(id)
    unrun_failures(key, arg, now)(id, 'expired')
  end)
  leave_wait(key, claimed.ids)
  leave_wait(key, dropped)
  claimed.more = groups and groups.refill() or claimed.more
  if may_drain and #claimed.ids == 0 and call('EXISTS', key.wait) == 0 then
    call('PUBLISH', arg.base .. 'drained', '')
  end
  return claimed, rows
end
