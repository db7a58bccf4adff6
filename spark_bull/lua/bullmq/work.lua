-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys control? counters? ledger? ledger_end?
-- @args base queue bullmq_version call ttl_ms lock_token lock_ms worker limit most_bytes limiter_max limiter_ms at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bullmq/lib/claim_fields
-- @include bullmq/lib/claim_next
-- @include bullmq/lib/settle_jobs
-- @include lib/work_once

return work_once(key, arg, settle_jobs, claim_next, CLAIM_FIELDS)
