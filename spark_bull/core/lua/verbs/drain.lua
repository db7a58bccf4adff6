-- Removes the next jobs of a state that wait for a worker or are delayed; see drained_test.
-- @returns {next position, '' at the end, number of removed jobs}
-- @include lib: once remove(sweep)
-- @include {dialect}/lib: remove(drained_test remove_jobs)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local position, ids = sweep(key, arg, drained_test(key, arg))
  remove_jobs(key, arg, ids)
  return {position, #ids}
end)
