-- Finds the first job of a staged chunk that can't be changed. Changes nothing.
-- @args base queue token bullmq_version number
-- @returns {id, action, reason}, or {} for none; see managed_jobs.manage
-- @include bullmq/lib/mismatch_of
-- @include lib/check_managed

return check_managed(key, arg, mismatch_of(key, arg))
