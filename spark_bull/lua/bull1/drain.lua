-- Removes the next jobs of a state that wait for a worker or for their time.
-- @keys receipt state
-- @args base call ttl_ms kind position size limit
-- @returns {next position, '' at the end, how many were removed}
-- @include bull1/lib/remove_jobs
-- @include lib/once
-- @include lib/sweep

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local position, ids = sweep(key, arg, function()
    return true
  end)
  remove_jobs(key, arg, ids)
  return {position, #ids}
end)
