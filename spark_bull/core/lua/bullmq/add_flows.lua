-- Adds flows, each of them whole or not at all, once per call of a sender.
-- @keys intake_closed? kept_ids? touched...
-- @returns {first job not processed, added, duplicates, deduplicated, {order, id} of jobs kept, {order, reason} of rejected jobs}, or a refusal; see add_once
-- @include lib: add_jobs(add_once)
-- @include bullmq/lib: flows(add_flows)

return add_once(key, arg, add_flows)
