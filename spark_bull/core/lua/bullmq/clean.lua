-- Of a state's next jobs, removes each that has no lock, is not the next job of a scheduler, and ended, started or
-- was added by `before`. The last call writes the event with the total; `removed`: number of jobs that earlier calls
-- have removed.
-- @returns {next position, '' at the end, ids of the removed jobs}
-- @include lib: jobs(added_at last_seen) once remove(sweep)
-- @include bullmq/lib: dependents(cut_sequence) remove(remove_jobs) schedules(is_scheduled_job)

local has_parents = call('EXISTS', key.waiting_children) == 1
local before, finished = tonumber(arg.before), arg.finished == '1'
-- The age of a prioritized job counts from when it was added, even if it has started since.
local seen = key.state == key.prioritized and added_at or last_seen

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local position, ids = sweep(key, arg, function(job_id, score)
    if finished then
      -- Sorted by the time at which they ended: all further ones are younger.
      return score <= before or nil
    end
    if call('EXISTS', arg.base .. job_id .. ':lock') == 1 or is_scheduled_job(key, arg, job_id) then
      return false
    end
    if (seen(arg.base .. job_id) or 0) > before then
      return false
    end
    return has_parents and cut_sequence(key, arg, job_id) and 'again' or true
  end)
  remove_jobs(key, arg, ids)
  if position == '' then
    call('XADD', key.events, '*', 'event', 'cleaned', 'count', arg.removed + #ids)
  end
  return {position, ids}
end)
