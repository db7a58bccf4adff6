-- Creates or changes the job schedulers of a packed chunk from row `from` on, and adds their next jobs.
-- @returns {first row not processed, when the next job of each is due (ms), {{row, id of the job that prevents it}...}},
-- or {'closed'}: the queue accepts no jobs, and nothing was changed
-- @include lib: once values(time_ms)
-- @include {dialect}/lib: schedules(upsert_schedules)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.intake_closed) == 1 then
    return {'closed'}, true
  end
  local made = upsert_schedules(key, arg, cmsgpack.unpack(arg.chunk), tonumber(arg.from), time_ms())
  return {made.next, made.due, made.rejected}
end)
