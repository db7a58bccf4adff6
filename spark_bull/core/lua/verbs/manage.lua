-- Changes jobs of a chunk, once per call of a sender; see manage_jobs.
-- @keys touched...
-- @returns {first row not processed, outcomes of the others}
-- @include lib: manage(manage_jobs) once values(time_ms)

return once(key.receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
  local result = manage_jobs(key, arg, cmsgpack.unpack(arg.chunk), tonumber(arg.from), time_ms())
  return {result.next, result.outcomes}
end)
