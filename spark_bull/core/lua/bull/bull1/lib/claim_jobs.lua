-- @include bull/lib: claim_jobs

-- Claims up to `limit` jobs. Bull 1.1 reads `lockAcquired` to decide whether a job without a lock was ever started.
local function claim_next(key, arg, now, limit)
  return claim_jobs(key, arg, now, limit, {}, function(job_key)
    call('HSET', job_key, 'lockAcquired', '1')
  end)
end
