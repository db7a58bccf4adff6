-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay.
-- @keys receipt wait paused active delayed prioritized waiting_children completed failed id pc meta events marker stalled stalled_check repeats limiter metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include obliterate
-- @include once
-- @include pause_bullmq
-- @include remove_bullmq

local function remove(ids)
  remove_jobs(key, arg, ids)
end

local function remove_schedulers(ids)
  for _, scheduler in ipairs(ids) do
    redis.call('UNLINK', key.repeats .. ':' .. scheduler)
  end
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local active = redis.call('LLEN', key.active)
  if active > 0 and arg.force ~= '1' then
    return {'active', active}
  end
  if pause_queue(key, arg.bullmq_version, tonumber(arg.move)) > 0 then
    return {'open'}
  end
  return {obliterate({
    {key.active, 'list', remove},
    {key.delayed, 'zset', remove},
    {key.prioritized, 'zset', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.waiting_children, 'zset', remove},
    {key.completed, 'zset', remove},
    {key.failed, 'zset', remove},
    {key.repeats, 'zset', remove_schedulers},
  }, {
    key.id, key.pc, key.meta, key.events, key.marker, key.stalled, key.stalled_check, key.limiter,
    key.metrics_completed, key.metrics_completed_data, key.metrics_failed, key.metrics_failed_data,
  }, tonumber(arg.limit))}
end)
