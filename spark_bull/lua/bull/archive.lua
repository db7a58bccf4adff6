-- Deletes the jobs of up to `limit` entries before a position of a ledger of results, unless they were retried since,
-- and removes the entries.
-- @keys completed failed
-- @args base position limit
-- @returns position of the first entry left, or false without a ledger
-- @include bull/lib/remove_jobs
-- @include lib/archived_sorted

local found, base = archived_sorted(key, arg)
remove_jobs(key, arg, found.completed, true)
remove_jobs(key, arg, found.failed, true)
return base or false
