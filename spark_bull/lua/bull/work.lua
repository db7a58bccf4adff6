-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys receipt control? ledger? damaged id wait paused active delayed priority stalled completed failed meta_paused limiter limiter_index rate_limited group_active group_delayed group_promoted group_started group_windows group_settings metrics_completed metrics_completed_data metrics_failed metrics_failed_data
-- @args base token call ttl_ms lock_token lock_ms limit most_bytes held limiter_max limiter_ms limiter_groups at_once group max_metrics want_jobs outcomes
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include bull/lib/claim_fields
-- @include bull/lib/claim_jobs
-- @include bull/lib/limit_group
-- @include bull/lib/promote_group
-- @include bull/lib/settle_jobs
-- @include lib/work_once

local call = redis.call

-- Removes claimed jobs from the groups in which Node's limiter keeps delayed jobs.
local function leave_limiter(ids)
  if call('EXISTS', key.limiter_index) == 1 then
    for _, id in ipairs(ids) do
      local group = call('HGET', key.limiter_index, id)
      if group then
        call('SREM', group, id)
        call('HDEL', key.limiter_index, id)
      end
    end
  end
end

-- Deletes what Bull stores about waiting jobs outside of their list.
local function leave_wait(ids)
  if #ids > 0 then
    call('ZREM', key.priority, unpack(ids))
    leave_limiter(ids)
  end
end

local function claim(now, limit, may_drain)
  local processed_on, channel = string.format('%.0f', now), arg.base .. 'active@' .. arg.token
  local limits = {of_groups = arg.limiter_groups == '1'}
  local claimed, rows, dropped, groups = claim_jobs(key, arg, now, limit, limits, function(job_key, id)
    if limits.of_groups and limit_group(key, arg, id, now) then
      return 'delayed'
    end
    call('HSET', job_key, 'processedOn', processed_on)
    call('PUBLISH', channel, id)
  end, function(ids)
    promote_group(key, arg, ids)
  end)
  leave_wait(claimed.ids)
  leave_wait(dropped)
  claimed.more = groups and groups.refill() or claimed.more
  if may_drain and #claimed.ids == 0 and call('EXISTS', key.wait) == 0 then
    call('PUBLISH', arg.base .. 'drained', '')
  end
  return claimed, rows
end

return work_once(key, arg, settle_jobs, claim, CLAIM_FIELDS)
