-- Removes one job and its keys.
-- @returns {'done'} (also when only the id existed), {'missing'} or {'locked'}
-- @include bull/lib: remove_job
-- @include lib: once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {remove_job(key, arg, arg.job_id)}
end)
