-- Deletes the jobs of up to `limit` entries before a position of a ledger of results, unless they were retried since,
-- and removes the entries.
-- @keys completed failed
-- @returns position of the first entry left, or false without a ledger
-- @include lib: results(archived_sorted)
-- @include {dialect}/lib: events(note_cleaned) remove(remove_jobs)

local found, base = archived_sorted(key, arg)
remove_jobs(key, arg, found.completed, true)
remove_jobs(key, arg, found.failed, true)
note_cleaned(key, #found.completed + #found.failed)
return base or false
