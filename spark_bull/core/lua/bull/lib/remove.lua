-- Jobs and queues are removed.
-- @include lib: jobs(job_row) remove(remove_members) waiting(search_steps)
-- @include {dialect}/lib: remove(remove_jobs) settle_jobs(finished_state) waiting(leave_wait pause_queue)

-- Deletes the keys of jobs that have left their state, and frees their debounce ids, as Bull does even if another job
-- has the id. Jobs that `finished` no longer have a priority or a place in a rate limited group, and have freed their
-- debounce ids unless those have a TTL.
local function remove_jobs(key, arg, ids, finished)
  if not finished then
    leave_wait(key, ids)
    for _, job_id in ipairs(ids) do
      local row = job_row(arg.base .. job_id, 'deid')
      if row and row[1] then
        call('UNLINK', arg.base .. 'de:' .. row[1])
      end
    end
  end
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs')
  end
end

-- Removes one job from its state, and its keys. Returns 'done' (also when only the id existed), 'missing' or 'locked'.
local function remove_job(key, arg, job_id)
  local take, job_key = finished_state.take, arg.base .. job_id
  if call('EXISTS', job_key .. ':lock') == 1 then
    return 'locked'
  end
  local gone = call(take, key.completed, job_id) + call(take, key.failed, job_id) + call('ZREM', key.delayed, job_id)
  if gone == 0 then
    for _, list in ipairs({key.active, key.wait, key.paused}) do
      gone = gone + call('LREM', list, 0, job_id)
    end
  end
  if gone == 0 and call('EXISTS', job_key) == 0 then
    return 'missing'
  end
  remove_jobs(key, arg, {job_id})
  return 'done'
end

-- As in bullmq/lib.
local function remove_call(key, arg, job_id, steps, is_first)
  if not call('ZSCORE', key.delayed, job_id) then
    steps = steps - search_steps({key.active, key.wait, key.paused}, job_id)
  end
  if steps >= 0 or is_first then
    remove_job(key, arg, job_id)
  end
  return steps
end

-- As in bullmq/lib, for the calls of a parent.
local function remove_unfinished(key, arg, parent_key, position, size, share)
  local has, removed = finished_state.has, 0
  local scanned = call('SSCAN', parent_key .. ':dependencies', position, 'COUNT', size)
  for _, job_key in ipairs(scanned[2]) do
    local job_id = string.sub(job_key, #arg.base + 1)
    local is_call = string.sub(job_id, 1, 6) ~= 'spark:'
    if is_call and call('EXISTS', job_key .. ':lock') == 0 and not has(key.completed, job_id)
      and not has(key.failed, job_id) then
      share.steps = remove_call(key, arg, job_id, share.steps, removed == 0)
      if share.steps < 0 and removed > 0 then
        return position, removed
      end
      call('SREM', parent_key .. ':dependencies', job_key)
      removed = removed + 1
    end
  end
  return scanned[1] == '0' and '' or scanned[1], removed
end

-- A queue is removed.

-- Pauses a queue of Bull and removes a portion of its jobs, in any state; once there are none, the `rest` of its keys.
-- Returns 'open' while there is more to remove, then 'done'.
local function obliterate_bull(key, arg, rest)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, arg, tonumber(arg.move)) > 0 or remove_members({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, finished_state.kind, remove},
    {key.failed, finished_state.kind, remove},
    {key.damaged, 'hash', remove},
  }, tonumber(arg.limit)) then
    return 'open'
  end
  call('UNLINK', unpack(rest))
  return 'done'
end

-- Returns what obliterate_bull does.
local function obliterate_queue(key, arg)
  return obliterate_bull(key, arg, {
    key.priority, key.id, key.meta, key.meta_paused, key.stalled, key.stalled_check, key.repeats,
    key.limiter, key.limiter_index, key.rate_limited, key.expiry, key.expired,
    key.group_active, key.group_delayed, key.group_promoted, key.group_started, key.group_windows, key.group_settings,
    key.group_own, key.group_checks,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data,
  })
end
