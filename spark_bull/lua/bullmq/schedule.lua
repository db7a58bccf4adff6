-- Creates or changes the job schedulers of a packed chunk from row `from` on, and adds their next jobs.
-- @keys receipt intake_closed repeats id meta expiry wait paused active delayed prioritized pc waiting_children completed events marker sequence_tails
-- @args base queue token bullmq_version call ttl_ms from chunk
-- @returns {first row not processed, when the next job of each is due (ms), {{row, id of the job that prevents it}...}}, or {'closed'}; see schedule_once
-- @include bullmq/lib/upsert_schedules
-- @include lib/schedule_once

return schedule_once(key, arg, upsert_schedules)
