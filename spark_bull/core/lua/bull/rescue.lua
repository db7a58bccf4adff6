-- Moves stalled jobs back to the waiting ones, a slice per call; see rescue_slices. A job that stalled more than
-- `max_stalled` times fails.
-- @returns {next position or '', ids of jobs that wait again, ids of jobs that failed}
-- @include lib: groups(group_places) once(rescue_slices) rescue(leave_groups) values(time_ms)
-- @include {dialect}/lib: rescue(stalled_requeuer)

local call, now = redis.call, time_ms()

local requeue = stalled_requeuer(key, arg, now)

return rescue_slices(key, arg, string.format('%.0f', now), function(ids)
  local back, failed = {}, {}
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
