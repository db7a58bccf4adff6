-- Adds jobs of one chunk to the queue, once per call of a sender.
-- @keys receipt id meta_paused expiry wait paused delayed jobs
-- @args base queue token bullmq_version number from chunk want_ids ttl_ms
-- @returns {first row not processed, added, duplicates, deduplicated, ids if wanted}
-- @include bull1/lib/add_jobs
-- @include lib/add_once

return add_once(key, arg, add_jobs)
