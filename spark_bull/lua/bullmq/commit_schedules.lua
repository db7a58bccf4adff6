-- Creates or changes the next staged job schedulers of a registered write.
-- @keys write manifest open_writes finished_writes kept_ids repeats id meta expiry wait paused active delayed prioritized pc waiting_children completed events marker sequence_tails
-- @args base queue token bullmq_version write_id position record_ttl_ms
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bullmq/lib/upsert_schedules
-- @include lib/commit_once

return commit_once(key, arg, upsert_schedules)
