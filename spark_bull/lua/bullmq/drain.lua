-- Removes the next jobs of a state that wait for a worker or for their time, except the next ones of
-- job schedulers.
-- @keys receipt state wait paused active prioritized waiting_children repeats pc meta events marker
-- @args base queue bullmq_version call ttl_ms kind position size limit
-- @returns {next position, '' at the end, how many were removed}
-- @include bullmq/lib/is_scheduled_job
-- @include bullmq/lib/remove_jobs
-- @include lib/once
-- @include lib/sweep

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local schedulers = redis.call('EXISTS', key.repeats) == 1
  local position, ids = sweep(key, arg, function(job_id)
    return not (schedulers and is_scheduled_job(key, arg, job_id))
  end)
  remove_jobs(key, arg, ids)
  return {position, #ids}
end)
