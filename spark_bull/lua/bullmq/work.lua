-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys receipt control? counters? ledger? ledger_end? damaged wait paused active delayed prioritized pc stalled completed failed waiting_children meta events marker limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings id metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms lock_token lock_ms worker limit most_bytes limiter_max limiter_ms at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bullmq/lib/claim_fields
-- @include bullmq/lib/claim_next
-- @include bullmq/lib/settle_jobs
-- @include lib/work_once

return work_once(key, arg, settle_jobs, claim_next, CLAIM_FIELDS)
