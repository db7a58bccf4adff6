-- Deletes jobs whose results have been taken, unless they have been retried since, and cuts their entries off the ledger:
-- up to `limit` before a position.
-- @keys wait paused active prioritized waiting_children pc meta events marker completed failed ledger track
-- @args base queue bullmq_version position limit
-- @returns position of the first entry that is left, or false without a ledger
-- @include bullmq/lib/remove_jobs
-- @include lib/archived_sorted

local found, base = archived_sorted(key, arg)
remove_jobs(key, arg, found.completed, true)
remove_jobs(key, arg, found.failed, true)
local count = #found.completed + #found.failed
if count > 0 then
  redis.call('XADD', key.events, '*', 'event', 'cleaned', 'count', count)
end
return base or false
