-- Removes the next jobs of a state that wait for a worker or are delayed.
-- @returns {next position, '' at the end, number of removed jobs}
-- @include lib: remove(drain_once)
-- @include {dialect}/lib: remove(remove_jobs)

return drain_once(key, arg, remove_jobs, function()
  return true
end)
