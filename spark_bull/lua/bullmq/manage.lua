-- Changes jobs of a chunk, once per call of a sender; see manage_jobs.
-- @keys receipt damaged wait paused active delayed prioritized pc stalled completed failed waiting_children meta events marker limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings id sequence_tails repeats metrics_completed metrics_completed_data metrics_failed metrics_failed_data expiry touched...
-- @args base queue token bullmq_version number from chunk ttl_ms group max_metrics
-- @returns {first row not processed, outcomes of the others}
-- @include bullmq/lib/manage_jobs
-- @include lib/manage_once

return manage_once(key, arg, manage_bullmq(key, arg))
