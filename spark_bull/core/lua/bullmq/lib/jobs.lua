-- @include lib: jobs(job_row)

-- Whether a job is the next one of a job scheduler, which needs it.
local function is_scheduled_job(key, arg, job_id)
  local row = job_row(arg.base .. job_id, 'rjk')
  local scheduler = row and row[1]
  local next_ms = scheduler and redis.call('ZSCORE', key.repeats, scheduler)
  return next_ms and job_id:sub(-#next_ms - 1) == ':' .. next_ms
end
