-- Settles a chunk of claimed jobs, adds their follow-ups and claims the next chunk, once per call of a sender.
-- @keys receipt control? counters? ledger? ledger_end? damaged expiry wait paused active delayed prioritized pc stalled completed failed waiting_children meta events marker limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings id metrics_completed metrics_completed_data metrics_failed metrics_failed_data sequence_tails touched...
-- @args base queue bullmq_version call ttl_ms lock_token lock_ms worker limit most_bytes limiter_max limiter_ms at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bullmq/lib/add_jobs
-- @include bullmq/lib/claim_fields
-- @include bullmq/lib/claim_next
-- @include bullmq/lib/hold_parents
-- @include bullmq/lib/settle_jobs
-- @include lib/add_follow_ups
-- @include lib/work_once

local settle_and_add = settling_and_adding(settle_jobs, add_jobs)

local function settle_and_add_children(keys, args, outcomes, now)
  local release = hold_parents(keys, args, outcomes.follow_ups)
  local settled = settle_and_add(keys, args, outcomes, now)
  release(now)
  return settled
end

return work_once(key, arg, settle_and_add_children, claim_next, CLAIM_FIELDS)
