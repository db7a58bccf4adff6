-- Creates or changes the schedules of a packed chunk from row `from` on, and adds their next jobs.
-- @keys receipt intake_closed repeats id meta_paused expiry wait paused delayed priority
-- @args base token call ttl_ms from chunk
-- @returns {first row not processed, when the next job of each is due (ms), {{row, id of the job that prevents it}...}}, or {'closed'}; see schedule_once
-- @include bull/lib/upsert_schedules
-- @include lib/schedule_once

return schedule_once(key, arg, upsert_schedules)
