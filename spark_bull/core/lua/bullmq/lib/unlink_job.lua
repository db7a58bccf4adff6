-- Deletes the keys of a job. Returns how many of them existed.
local function unlink_job(job_key)
  return redis.call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs', job_key .. ':dependencies',
    job_key .. ':processed', job_key .. ':failed', job_key .. ':unsuccessful')
end
