-- Adds jobs of one chunk to the queue, once per call of a sender.
-- @keys intake_closed? kept_ids?
-- @returns {first row not processed, added, duplicates, deduplicated, ids if wanted, {row, reason} of rejected jobs, dropped (nil: 0)}, or a refusal; see add_once
-- @include lib: add_jobs(add_once)
-- @include {dialect}/lib: add_jobs

return add_once(key, arg, add_jobs)
