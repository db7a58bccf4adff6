-- Removes the next jobs of a queue that a registered write replaces, and finally the queue's other keys. Does nothing
-- after that: later jobs are those of the write.
-- @keys receipt damaged rate_limited group_active group_delayed group_promoted group_started group_windows group_settings write expiry expired wait paused active delayed completed failed priority id meta meta_paused stalled stalled_check repeats limiter limiter_index metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base call ttl_ms limit move
-- @returns 'open' (call again) or 'done'
-- @include bull/lib/obliterate_queue
-- @include lib/empty_once

return empty_once(key, arg, obliterate_queue)
