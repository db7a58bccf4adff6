-- Finds the first job of a staged chunk that can't be changed. Changes nothing.
-- @args base queue token number
-- @returns {id, action, reason}, or {} for none; see managed_jobs.manage
-- @include bull/lib/is_in_sorted
-- @include bull/lib/mismatch_of
-- @include lib/check_managed

return check_managed(key, arg, mismatch_of(key, is_in_sorted))
