-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys receipt control? ledger? damaged wait paused active delayed prioritized pc stalled completed failed waiting_children meta events marker limiter rate_limited group_active group_delayed group_promoted group_started group_windows group_settings id metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base queue bullmq_version call ttl_ms lock_token lock_ms worker limit most_bytes limiter_max limiter_ms at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bullmq/lib/claim_fields
-- @include bullmq/lib/claim_jobs
-- @include bullmq/lib/settle_jobs
-- @include lib/work_once

-- As in Node, there is no event "drained" when a pause or a limit of the queue kept the call from claiming.
local function claim(now, limit, may_drain)
  local claimed, rows, is_held = claim_jobs(key, arg, now, limit)
  if may_drain and #claimed.ids == 0 and not claimed.next_due and not (limit > 0 and is_held)
    and redis.call('EXISTS', key.wait, key.active, key.prioritized) == 0 then
    redis.call('XADD', key.events, '*', 'event', 'drained')
  end
  return claimed, rows
end

return work_once(key, arg, settle_jobs, claim, CLAIM_FIELDS)
