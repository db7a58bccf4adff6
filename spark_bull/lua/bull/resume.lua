-- Resumes the queue, once all its jobs are in one list.
-- @keys wait paused meta_paused meta resumed
-- @args limit
-- @returns how many jobs are still to be moved: call again until 0
-- @include lib/join_lists

local left = join_lists(key, key.wait, tonumber(arg.limit))
if left == 0 and redis.call('DEL', key.meta_paused) + redis.call('HDEL', key.meta, 'paused') > 0 then
  redis.call('PUBLISH', key.resumed, 'resumed')
end
return left
