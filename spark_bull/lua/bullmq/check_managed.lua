-- Finds the first job of a staged chunk that can't be changed. Changes nothing.
-- @keys stage delayed completed failed waiting_children id repeats
-- @args base queue token bullmq_version number
-- @returns {id, action, reason}, or {} for none; see manage_jobs
-- @include bullmq/lib/mismatch_of
-- @include lib/check_managed

return check_managed(key, arg, mismatch_of(key, arg))
