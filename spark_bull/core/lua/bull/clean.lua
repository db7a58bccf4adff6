-- Of a state's next jobs, removes each that has no lock and ended, started or was added by `before`.
-- @returns {next position, '' at the end, ids of the removed jobs}
-- @include lib: jobs(last_seen) once remove(sweep)
-- @include {dialect}/lib: remove(remove_jobs)

local before, finished = tonumber(arg.before), arg.finished == '1'

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local position, ids = sweep(key, arg, function(job_id, score)
    -- Finished jobs are sorted by the time at which they ended: all further ones are younger.
    if finished and score > before then
      return nil
    end
    if call('EXISTS', arg.base .. job_id .. ':lock') == 1 then
      return false
    end
    return finished or (last_seen(arg.base .. job_id) or 0) <= before
  end)
  remove_jobs(key, arg, ids, finished)
  return {position, ids}
end)
