-- Adds the next job of the job scheduler of each packed job, unless the scheduler was removed. `again` = 1: the jobs
-- were claimed before, so a scheduler that has advanced since stays as it is; Bull itself does not check that.
-- @returns for each job 'next', 'duplicated' (it exists), 'past' (the scheduler has advanced) or 'none' (no scheduler)
-- @include lib: once(advance_once) schedules(next_job) values(time_ms)
-- @include {dialect}/lib: add_jobs

local now = time_ms()

local function advance(job)
  local scheduled = call('ZSCORE', key.repeats, job.key)
  if not scheduled then
    return 'none'
  end
  if arg.again == '1' and tonumber(scheduled) > job.due then
    return 'past'
  end
  call('ZADD', key.repeats, job.next, job.key)
  local made = add_jobs(key, arg, next_job(job, job.id, job.next, job.name, job.data), 1, now)
  return made.added == 1 and 'next' or 'duplicated'
end

return advance_once(key, arg, advance)
