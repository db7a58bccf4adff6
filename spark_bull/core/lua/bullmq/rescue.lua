-- Moves stalled jobs back to the waiting ones, a slice per call; see rescue_slices and requeue_stalled.
-- @returns {next position or '', ids of jobs that wait again, {}}
-- @include lib: groups(group_places) once(rescue_slices) rescue(leave_groups) values(time_ms)
-- @include bullmq/lib: events(event_limit) rescue(requeue_stalled)

local call = redis.call

return rescue_slices(key, arg, string.format('%.0f', time_ms()), function(ids)
  local back = {}
  if arg.position == '' then
    call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  end
  local left = leave_groups(key, ids)
  for _, id in ipairs(ids) do
    if call('LREM', key.active, 1, id) > 0 then
      requeue_stalled(key, arg, id, true)
      back[#back + 1] = id
    end
  end
  group_places.keep(key, left, back)
  return back, {}
end)
