-- Pauses a queue, then removes its next jobs, whatever their state, and finally the queue's other keys. Staged chunks
-- and writes stay; so do parents of BullMQ that wait for children of another queue.
-- @args base queue bullmq_version call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', number of active jobs} unless `force`
-- @include lib/obliterate_once
-- @include {dialect}/lib/obliterate_queue

return obliterate_once(key, arg, obliterate_queue)
