-- Deletes jobs whose results have been taken, unless they have been retried since, and cuts their entries off the ledger:
-- up to `limit` before a position.
-- @keys completed failed priority limiter_index ledger track
-- @args base position limit
-- @returns position of the first entry that is left, or false without a ledger
-- @include bull/lib/remove_jobs
-- @include lib/archived_sorted

local found, base = archived_sorted(key, arg)
remove_jobs(key, arg, found.completed, true)
remove_jobs(key, arg, found.failed, true)
return base or false
