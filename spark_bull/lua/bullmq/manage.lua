-- Changes jobs of a chunk, once per call of a sender; see managed_jobs.manage.
-- @keys touched...
-- @args base queue token bullmq_version number from chunk ttl_ms group max_metrics
-- @returns {first row not processed, outcomes of the others}
-- @include bullmq/lib/manage_bullmq
-- @include lib/manage_once

return manage_once(key, arg, manage_bullmq(key, arg))
