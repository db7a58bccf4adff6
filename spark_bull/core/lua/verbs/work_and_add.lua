-- Settles a chunk of claimed jobs, adds their follow-ups and claims the next chunk, once per call of a sender.
-- @keys control? counters? ledger? ledger_end? touched...
-- @returns msgpack of {ids, columns, damaged, lost, limited_ms, next_due, more, stop, paused, now}
-- @include lib: claim_jobs(work_once) settle_jobs(settle_and_add)

-- A function around it, so that settle_and_add is made only if there is something to settle.
return work_once(key, arg, function(...)
  return settle_and_add(...)
end)
