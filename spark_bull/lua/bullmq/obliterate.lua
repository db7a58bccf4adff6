-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay; parents that wait for another queue's children do, too.
-- @keys receipt wait paused active delayed prioritized waiting_children completed failed id pc meta events marker stalled stalled_check repeats limiter metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include obliterate_bullmq
-- @include once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local active = redis.call('LLEN', key.active)
  if active > 0 and arg.force ~= '1' then
    return {'active', active}
  end
  return {obliterate_queue(key, arg)}
end)
