-- Changes jobs of a chunk, once per call of a sender; see managed_jobs.manage.
-- @keys touched...
-- @args base queue token number from chunk ttl_ms group
-- @returns {first row not processed, outcomes of the others}
-- @include bull/lib/managing
-- @include bull1/lib/own_verbs
-- @include lib/manage_once

return manage_once(key, arg, managing(key, arg, own_verbs))
