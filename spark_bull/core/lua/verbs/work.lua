-- Settles a chunk of claimed jobs and claims the next one, once per call of a sender.
-- @keys control? counters? ledger? ledger_end?
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include lib: claim_jobs(work_once)
-- @include {dialect}/lib: settle_jobs

-- A function around it, so that settle_jobs is made only if there is something to settle.
return work_once(key, arg, function(...)
  return settle_jobs(...)
end)
