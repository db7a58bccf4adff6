-- Removes one job and its keys.
-- @keys receipt job lock wait paused active delayed completed failed
-- @args base call ttl_ms job_id
-- @returns {'done'} (also when only the id existed), {'missing'} or {'locked'}
-- @include bull/lib/remove_once
-- @include bull1/lib/remove_jobs

return remove_once(key, arg, 'SREM', remove_jobs)
