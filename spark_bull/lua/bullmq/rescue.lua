-- Moves stalled jobs back to the waiting ones, a slice per call; see rescue_slices. A job that stalled more than
-- `max_stalled` times gets a deferred failure, with which the next worker fails it, unless a scheduler made it.
-- @keys receipt stalled stalled_check active wait paused prioritized pc meta events marker repeats group_active group_delayed group_promoted
-- @args base bullmq_version call ttl_ms position limit max_stalled check_ms
-- @returns {next position or '', ids of jobs that wait again, {}}
-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/event_limit
-- @include lib/count_up
-- @include lib/group_places
-- @include lib/leave_groups
-- @include lib/rescue_slices
-- @include lib/time_ms

local call = redis.call

local function is_scheduled(job_key)
  local scheduler = call('HGET', job_key, 'rjk')
  return scheduler and (call('EXISTS', key.repeats .. ':' .. scheduler) == 1 or call('ZSCORE', key.repeats, scheduler))
end

return rescue_slices(key, arg, string.format('%.0f', time_ms()), function(ids)
  local back = {}
  if arg.position == '' then
    call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
  end
  local left = leave_groups(key, ids)
  for _, id in ipairs(ids) do
    if call('LREM', key.active, 1, id) > 0 then
      local job_key = arg.base .. id
      local stalled = count_up(job_key, 'stc')
      if stalled and stalled > tonumber(arg.max_stalled) and not is_scheduled(job_key) then
        call('HSET', job_key, 'defa', 'job stalled more than allowable limit')
      end
      enqueue_job(key, arg.bullmq_version, id, 0, 'RPUSH')
      call('XADD', key.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
      call('XADD', key.events, '*', 'event', 'stalled', 'jobId', id)
      back[#back + 1] = id
    end
  end
  keep_places(key, left, back)
  return back, {}
end)
