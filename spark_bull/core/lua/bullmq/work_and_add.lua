-- As verbs/work_and_add.lua; parents of follow-ups do not start before these are added.
-- @keys control? counters? ledger? ledger_end? touched...
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include lib: claim_jobs(work_once) settle_jobs(settle_and_add)
-- @include bullmq/lib: dependents(hold_parents)

return work_once(key, arg, function(keys, args, outcomes, now)
  local release = hold_parents(keys, args, outcomes.follow_ups)
  local settled = settle_and_add(keys, args, outcomes, now)
  release(now)
  return settled
end)
