-- Moves active jobs without a lock back to the waiting ones, a slice per call; see stalled_requeuer. Bull 1 does not
-- record checks; here too, `check_ms` pass between two of them.
-- @returns {next position or '', ids of jobs that wait again, ids of jobs that failed}
-- @include lib: groups(group_places) once rescue(leave_groups)
-- @include bull/bull1/lib: rescue(stalled_requeuer)

local requeue = stalled_requeuer(key, arg)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if arg.position == '' and not (call('EXISTS', key.active) == 1
    and call('SET', key.rescue_check, '1', 'PX', arg.check_ms, 'NX')) then
    return {'', {}, {}}, true
  end
  local from, limit = tonumber(arg.position) or 0, tonumber(arg.limit)
  local ids, back, failed = call('LRANGE', key.active, -from - limit, -from - 1), {}, {}
  for _, id in ipairs(ids) do
    if call('EXISTS', arg.base .. id .. ':lock') == 0 and call('LREM', key.active, -1, id) > 0 then
      local left = leave_groups(key, {id})
      local list = requeue(id, true) and back or failed
      list[#list + 1] = id
      if list == back then
        group_places.keep(key, left, {id})
      end
    end
  end
  return {#ids < limit and '' or string.format('%.0f', from + limit - #back - #failed), back, failed}
end)
