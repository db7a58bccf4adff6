-- Settles a chunk of claimed jobs, adds their follow-ups and claims the next chunk, once per call of a sender.
-- @keys control? counters? ledger? ledger_end? touched...
-- @args base queue bullmq_version call ttl_ms lock_token lock_ms worker limit most_bytes limiter_max limiter_ms at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bullmq/lib/add_jobs
-- @include bullmq/lib/claim_fields
-- @include bullmq/lib/claim_next
-- @include bullmq/lib/hold_parents
-- @include bullmq/lib/settle_jobs
-- @include lib/settling_and_adding
-- @include lib/work_once

local settle_and_add = settling_and_adding(settle_jobs, add_jobs)

local function settle_and_add_children(keys, args, outcomes, now)
  local release = hold_parents(keys, args, outcomes.follow_ups)
  local settled = settle_and_add(keys, args, outcomes, now)
  release(now)
  return settled
end

return work_once(key, arg, settle_and_add_children, claim_next, CLAIM_FIELDS)
