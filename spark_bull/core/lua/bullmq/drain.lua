-- Removes the next jobs of a state that wait for a worker or are delayed, except the next jobs of job schedulers.
-- @returns {next position, '' at the end, number of removed jobs}
-- @include lib: remove(drain_once)
-- @include bullmq/lib: dependents(cut_sequence) remove(remove_jobs) schedules(is_scheduled_job)

local has_schedulers = redis.call('EXISTS', key.repeats) == 1
local has_parents = redis.call('EXISTS', key.waiting_children) == 1

return drain_once(key, arg, remove_jobs, function(job_id)
  if has_schedulers and is_scheduled_job(key, arg, job_id) then
    return false
  end
  return has_parents and cut_sequence(key, arg, job_id) and 'again' or true
end)
