-- Removes one job and its keys.
-- @args base call ttl_ms job_id
-- @returns {'done'} (also when only the id existed), {'missing'} or {'locked'}
-- @include bull/lib/remove_job
-- @include bull/lib/remove_jobs
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {remove_job(key, arg, arg.job_id, 'ZREM', remove_jobs)}
end)
