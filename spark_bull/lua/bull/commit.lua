-- Adds the next staged jobs of a registered write to the queue.
-- @keys write manifest open_writes finished_writes kept_ids id meta_paused expiry wait paused delayed priority
-- @args base queue token bullmq_version write_id position record_ttl_ms
-- @returns {state of the write, rows processed, id of a write that comes first, or length of a full queue}; see commit_once
-- @include bull/lib/add_jobs
-- @include lib/commit_once

return commit_once(key, arg, add_jobs)
