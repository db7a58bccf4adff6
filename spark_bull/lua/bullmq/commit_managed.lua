-- Changes the next jobs of a registered write; see managed_jobs.manage.
-- @keys touched...
-- @args base queue token bullmq_version write_id position record_ttl_ms group max_metrics
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bullmq/lib/manage_bullmq
-- @include lib/commit_managed

return commit_managed(key, arg, manage_bullmq(key, arg))
