-- Moves stalled jobs back to the waiting ones, a slice per call; see rescue_slices and stalled_requeuer.
-- @returns {next position or '', ids of jobs that wait again, ids of jobs that failed}
-- @include lib: groups(group_places) once(rescue_slices) rescue(leave_groups) values(time_ms)
-- @include {dialect}/lib: rescue(stalled_requeuer)

local now = time_ms()

return rescue_slices(key, arg, string.format('%.0f', now), function(ids)
  local requeue, back, failed = stalled_requeuer(key, arg, now), {}, {}
  local left = leave_groups(key, ids)
  for _, id in ipairs(ids) do
    if call('LREM', key.active, 1, id) > 0 then
      local list = requeue(id, true) and back or failed
      list[#list + 1] = id
    end
  end
  group_places.keep(key, left, back)
  return back, failed
end)
