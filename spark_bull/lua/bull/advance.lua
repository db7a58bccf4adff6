-- Adds the next job of the schedule of each packed job, unless the schedule was removed. `again`: jobs that were
-- claimed before count only if their schedule has not advanced since; Bull itself does not check that.
-- @args base token call ttl_ms again jobs
-- @returns for each job 'next', 'duplicated' (it exists), 'past' (the schedule has advanced) or 'none' (no schedule)
-- @include bull/lib/add_jobs
-- @include lib/advance_once
-- @include lib/next_job
-- @include lib/time_ms

local call, now = redis.call, time_ms()

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
