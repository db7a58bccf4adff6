-- Removes one job and all it has.
-- @keys receipt job lock wait paused active delayed completed failed
-- @args base call ttl_ms job_id
-- @returns {'done'} (also for an id whose job is gone), {'missing'} or {'locked'}
-- @include bull/lib/remove_once
-- @include bull1/lib/remove_jobs

return remove_once(key, arg, 'SREM', remove_jobs)
