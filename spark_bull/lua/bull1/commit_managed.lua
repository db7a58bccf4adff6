-- Changes the next jobs of a registered write; see manage_jobs.
-- @keys write manifest open_writes finished_writes kept_ids outcomes damaged id wait paused active delayed stalled completed failed meta_paused jobs rate_limited group_active group_delayed group_promoted group_started group_windows group_settings expiry touched...
-- @args base queue token write_id position record_ttl_ms group
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bull/lib/manage_jobs
-- @include bull1/lib/own_verbs
-- @include lib/commit_managed

return commit_managed(key, arg, managing(key, arg, own_verbs))
