-- Removes those descendants of a job that have not ended and that no worker has locked, children before parents: at most
-- `limit` jobs per call, of those children that one SSCAN from `position` returns. In a cycle, the job is removed, too.
-- @keys completed delayed
-- @returns {next position or '', number of removed jobs}, or {'missing'}
-- @include lib: once waiting(WALK_STEPS)
-- @include bullmq/lib: remove(remove_unfinished)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  local share = {jobs = tonumber(arg.limit), steps = WALK_STEPS, seen = {}}
  return {remove_unfinished(key, arg, key.job, arg.position, arg.limit, share)}
end)
