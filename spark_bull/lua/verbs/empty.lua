-- Removes the next jobs of a queue that a registered write replaces, and finally the queue's other keys. Does nothing
-- after that: later jobs are those of the write.
-- @args base queue bullmq_version call ttl_ms limit move
-- @returns 'open' (call again) or 'done'
-- @include lib/empty_once
-- @include {dialect}/lib/obliterate_queue

return empty_once(key, arg, obliterate_queue)
