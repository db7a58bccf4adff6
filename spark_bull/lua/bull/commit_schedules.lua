-- Creates or changes the next staged schedules of a registered write.
-- @keys write manifest open_writes finished_writes kept_ids repeats id meta_paused expiry wait paused delayed priority
-- @args base token write_id position record_ttl_ms
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bull/lib/upsert_schedules
-- @include lib/commit_once

return commit_once(key, arg, upsert_schedules)
