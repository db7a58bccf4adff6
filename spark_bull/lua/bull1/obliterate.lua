-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay.
-- @keys receipt damaged rate_limited wait paused active delayed completed failed id meta_paused
-- @args base call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include bull1/lib/obliterate_queue
-- @include lib/obliterate_once

return obliterate_once(key, arg, obliterate_queue)
