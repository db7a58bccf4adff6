-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay; parents that wait for another queue's children do, too.
-- @keys receipt damaged rate_limited wait paused active delayed prioritized waiting_children completed failed id pc meta events marker stalled stalled_check repeats limiter metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include bullmq/lib/obliterate_queue
-- @include lib/obliterate_once

return obliterate_once(key, arg, obliterate_queue)
