-- @include bull/lib/pause_queue
-- @include bull/lib/remove_jobs
-- @include lib/obliterate

-- Pauses a queue, then removes its next jobs, whatever their state, and in the end the queue itself.
-- Returns 'open' while there is more to be removed, then 'done'.
local function obliterate_queue(key, arg)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, tonumber(arg.move)) > 0 then
    return 'open'
  end
  return obliterate({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, 'zset', remove},
    {key.failed, 'zset', remove},
    {key.damaged, 'hash', remove},
  }, {
    key.priority, key.id, key.meta, key.meta_paused, key.stalled, key.stalled_check, key.repeats,
    key.limiter, key.limiter_index, key.rate_limited, key.metrics_completed, key.metrics_completed_data,
    key.metrics_failed, key.metrics_failed_data,
  }, tonumber(arg.limit))
end
