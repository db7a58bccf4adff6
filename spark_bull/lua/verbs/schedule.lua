-- Creates or changes the schedules of a packed chunk from row `from` on, and adds their next jobs.
-- @args base queue token bullmq_version call ttl_ms from chunk
-- @returns {first row not processed, when the next job of each is due (ms), {{row, id of the job that prevents it}...}}, or {'closed'}; see schedule_once
-- @include lib/schedule_once
-- @include {dialect}/lib/upsert_schedules

return schedule_once(key, arg, upsert_schedules)
