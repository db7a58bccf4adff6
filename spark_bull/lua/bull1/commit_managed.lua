-- Changes the next jobs of a registered write; see managed_jobs.manage.
-- @keys touched...
-- @args base queue token write_id position record_ttl_ms group
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include bull/lib/managing
-- @include bull1/lib/own_verbs
-- @include lib/commit_managed

return commit_managed(key, arg, managing(key, arg, own_verbs))
