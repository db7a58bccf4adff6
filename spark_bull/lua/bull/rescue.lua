-- Moves stalled jobs back to the waiting ones, a slice per call; see rescue_slices. A job that stalled more than
-- `max_stalled` times fails.
-- @keys receipt stalled stalled_check active wait paused meta_paused failed group_active group_delayed group_promoted
-- @args base call ttl_ms position limit max_stalled check_ms
-- @returns {next position or '', ids of jobs that wait again, ids of jobs that failed}
-- @include bull/lib/finished_of
-- @include bull/lib/waiting_list
-- @include lib/count_up
-- @include lib/group_places
-- @include lib/leave_groups
-- @include lib/rescue_slices
-- @include lib/time_ms

local call, now = redis.call, time_ms()

-- The rule for failed jobs in the job's own options: {count, age}, and whether it removes the job.
local function rule_of(opts)
  local is_json, parsed = pcall(cjson.decode, opts or '')
  local rule = is_json and type(parsed) == 'table' and parsed.removeOnFail
  if type(rule) == 'number' then
    return {count = rule}
  end
  if type(rule) ~= 'table' then
    return {}, rule == true
  end
  return {count = tonumber(rule.count), age = tonumber(rule.age)}, false
end

local function fail(id, finished)
  local job_key, reason = arg.base .. id, 'job stalled more than allowable limit'
  local keep, removed = rule_of(call('HGET', job_key, 'opts'))
  free_debounce(arg.base, id)
  call('ZADD', key.failed, string.format('%.0f', now), id)
  call('HSET', job_key, 'failedReason', reason, 'finishedOn', string.format('%.0f', now))
  call('PUBLISH', key.failed, '{"jobId":"' .. id .. '", "val": "job stalled more than maxStalledCount"}')
  if removed then
    call('UNLINK', job_key, job_key .. ':logs')
    call('ZREM', key.failed, id)
  else
    keep_rule(finished, keep)
  end
end

return rescue_slices(key, arg, string.format('%.0f', now), function(ids)
  local back, failed, finished = {}, {}, finished_of(arg.base, key.failed, now)
  local left = leave_groups(key, ids)
  for _, id in ipairs(ids) do
    if call('LREM', key.active, 1, id) > 0 then
      local stalled = count_up(arg.base .. id, 'stalledCounter')
      if stalled and stalled > tonumber(arg.max_stalled) then
        fail(id, finished)
        failed[#failed + 1] = id
      else
        call('RPUSH', waiting_list(key), id)
        call('PUBLISH', key.stalled .. '@', id)
        back[#back + 1] = id
      end
    end
  end
  keep_places(key, left, back)
  return back, failed
end)
