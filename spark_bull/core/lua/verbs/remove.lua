-- Removes one job and its keys.
-- @returns {'done'} (also when only the id existed), {'missing'} or {'locked'}
-- @include lib: once
-- @include bull/lib: remove(remove_job)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  return {remove_job(key, arg, arg.job_id)}
end)
