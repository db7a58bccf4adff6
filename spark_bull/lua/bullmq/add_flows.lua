-- Adds flows, each of them whole or not at all, once per call of a sender.
-- @keys intake_closed? touched...
-- @args base queue token bullmq_version number from chunk want_ids ttl_ms max_length when_full writes
-- @returns {first job not processed, added, duplicates, deduplicated, {order, id} of jobs kept, {order, reason} of rejected jobs}, or a refusal; see add_once
-- @include bullmq/lib/add_flows
-- @include lib/add_once

return add_once(key, arg, add_flows)
