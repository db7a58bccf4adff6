-- Changes the next jobs of a registered write; see manage_jobs.
-- @keys write manifest open_writes finished_writes kept_ids outcomes damaged wait paused active delayed prioritized pc stalled completed failed waiting_children meta events marker limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings id sequence_tails repeats metrics_completed metrics_completed_data metrics_failed metrics_failed_data expiry touched...
-- @args base queue token bullmq_version write_id position record_ttl_ms group max_metrics
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bullmq/lib/manage_jobs
-- @include lib/commit_managed

return commit_managed(key, arg, manage_bullmq(key, arg))
