-- Settles a chunk of claimed jobs, adds their follow-ups and claims the next chunk, once per call of a sender.
-- @keys control? counters? ledger? ledger_end? touched...
-- @args base token call ttl_ms lock_token lock_ms limit most_bytes held limiter_max limiter_ms limiter_groups at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bull/lib/add_jobs
-- @include bull/lib/claim_fields
-- @include bull/lib/claim_next
-- @include bull/lib/settle_jobs
-- @include lib/settling_and_adding
-- @include lib/work_once

return work_once(key, arg, settling_and_adding(settle_jobs, add_jobs), claim_next, CLAIM_FIELDS)
