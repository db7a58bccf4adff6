-- Removes the next jobs of a state that wait for a worker or are delayed.
-- @keys receipt state priority limiter_index
-- @args base call ttl_ms kind position size limit
-- @returns {next position, '' at the end, number of removed jobs}
-- @include bull/lib/remove_jobs
-- @include lib/drain_once

return drain_once(key, arg, remove_jobs, function()
  return true
end)
