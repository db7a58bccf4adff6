-- Pauses a queue, then removes its next jobs, whatever their state, and finally the queue's other keys. Staged chunks
-- and writes stay; so do parents that wait for children of another queue.
-- @keys receipt damaged rate_limited group_active group_delayed group_promoted group_started group_windows group_settings sequence_tails expiry wait paused active delayed prioritized waiting_children completed failed id pc meta events marker stalled stalled_check repeats limiter metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', number of active jobs} unless `force`
-- @include bullmq/lib/obliterate_queue
-- @include lib/obliterate_once

return obliterate_once(key, arg, obliterate_queue)
