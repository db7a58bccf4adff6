-- Moves all waiting jobs into one list, then resumes the queue.
-- @keys wait paused meta_paused meta resumed
-- @args limit
-- @returns number of jobs still to be moved: call again until 0
-- @include lib/join_lists

local left = join_lists(key, key.wait, tonumber(arg.limit))
if left == 0 and redis.call('DEL', key.meta_paused) + redis.call('HDEL', key.meta, 'paused') > 0 then
  redis.call('PUBLISH', key.resumed, 'resumed')
end
return left
