-- Changes jobs of a chunk, once per call of a sender; see manage_jobs.
-- @keys receipt damaged id wait paused active delayed priority stalled completed failed meta_paused limiter_index rate_limited group_active group_delayed group_promoted group_started group_windows group_settings metrics_completed metrics_completed_data metrics_failed metrics_failed_data expiry touched...
-- @args base queue token number from chunk ttl_ms group max_metrics
-- @returns {first row not processed, outcomes of the others}
-- @include bull/lib/manage_jobs
-- @include bull/lib/own_verbs
-- @include lib/manage_once

return manage_once(key, arg, managing(key, arg, own_verbs))
