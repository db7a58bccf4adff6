-- Moves active jobs without a lock back to the waiting ones, a slice per call. A job that was started before and
-- stalled more than `max_stalled` times fails. Bull 1 does not record checks; here too, `check_ms` pass between two of
-- them.
-- @keys receipt active rescue_check wait paused meta_paused failed group_active group_delayed group_promoted
-- @args base queue token call ttl_ms position limit max_stalled check_ms
-- @returns {next position or '', ids of jobs that wait again, ids of jobs that failed}
-- @include bull/lib/waiting_list
-- @include bull1/lib/fail_unrun
-- @include lib/count_up
-- @include lib/group_places
-- @include lib/leave_groups
-- @include lib/once

local call = redis.call

local function rescue(id)
  local job_key = arg.base .. id
  local was_started = redis.pcall('HEXISTS', job_key, 'lockAcquired') == 1
  if was_started and count_up(job_key, 'stalledCounter') > tonumber(arg.max_stalled) then
    fail_unrun(key, arg, id, 'job stalled more than allowable limit')
    return false
  end
  call('RPUSH', waiting_list(key), id)
  if was_started then
    announce(arg, 'stalled', id)
  end
  return true
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if arg.position == '' and not (call('EXISTS', key.active) == 1
    and call('SET', key.rescue_check, '1', 'PX', arg.check_ms, 'NX')) then
    return {'', {}, {}}
  end
  local from, limit = tonumber(arg.position) or 0, tonumber(arg.limit)
  local ids, back, failed = call('LRANGE', key.active, -from - limit, -from - 1), {}, {}
  for _, id in ipairs(ids) do
    if call('EXISTS', arg.base .. id .. ':lock') == 0 and call('LREM', key.active, -1, id) > 0 then
      local left = leave_groups(key, {id})
      local list = rescue(id) and back or failed
      list[#list + 1] = id
      if list == back then
        keep_places(key, left, {id})
      end
    end
  end
  return {#ids < limit and '' or string.format('%.0f', from + limit - #back - #failed), back, failed}
end)
