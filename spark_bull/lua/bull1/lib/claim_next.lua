-- @include bull/lib/claim_jobs
-- @include bull1/lib/fail_unrun
-- @include bull1/lib/promote_group

-- Claims up to `limit` jobs. Bull 1.1 reads `lockAcquired` to decide whether a job without a lock was ever started.
local function claim_next(key, arg, now, limit)
  local claimed, rows, _, groups = claim_jobs(key, arg, now, limit, {}, function(job_key)
    redis.call('HSET', job_key, 'lockAcquired', '1')
  end, function(ids)
    promote_group(key, ids)
  end, 'lockAcquired', function(id)
    fail_unrun(key, arg, id, 'expired')
  end)
  claimed.more = groups and groups.refill() or claimed.more
  return claimed, rows
end
