-- Pauses a queue, then removes its next jobs, whatever their state, and finally the queue's other keys. Staged chunks
-- and writes stay.
-- @keys receipt damaged rate_limited group_active group_delayed group_promoted group_started group_windows group_settings expiry expired wait paused active delayed completed failed priority id meta meta_paused stalled stalled_check repeats limiter limiter_index metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', number of active jobs} unless `force`
-- @include bull/lib/obliterate_queue
-- @include lib/obliterate_once

return obliterate_once(key, arg, obliterate_queue)
