-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys receipt control? ledger? damaged id wait paused active delayed stalled completed failed meta_paused jobs limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings
-- @args base queue token call ttl_ms lock_token lock_ms limit most_bytes held limiter_max limiter_ms at_once group want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bull/lib/claim_fields
-- @include bull/lib/claim_jobs
-- @include bull1/lib/promote_group
-- @include bull1/lib/settle_jobs
-- @include lib/work_once

-- Bull 1.1 reads `lockAcquired` to decide whether a job without a lock was ever started.
local function claim(now, limit)
  local claimed, rows, _, groups = claim_jobs(key, arg, now, limit, {}, function(job_key)
    redis.call('HSET', job_key, 'lockAcquired', '1')
  end, function(ids)
    promote_group(key, ids)
  end)
  claimed.more = groups and groups.refill() or claimed.more
  return claimed, rows
end

return work_once(key, arg, settle_jobs, claim, CLAIM_FIELDS)
