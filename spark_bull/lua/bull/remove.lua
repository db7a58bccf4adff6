-- Removes one job and its keys.
-- @keys receipt job lock wait paused active delayed completed failed priority limiter_index
-- @args base call ttl_ms job_id
-- @returns {'done'} (also when only the id existed), {'missing'} or {'locked'}
-- @include bull/lib/remove_jobs
-- @include bull/lib/remove_once

return remove_once(key, arg, 'ZREM', remove_jobs)
