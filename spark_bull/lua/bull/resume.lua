-- Moves all waiting jobs into one list, then resumes the queue, once per call of a sender.
-- @args call ttl_ms limit
-- @returns number of jobs still to be moved: call again until 0
-- @include lib/join_lists
-- @include lib/once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local left = join_lists(key, key.wait, tonumber(arg.limit))
  if left == 0 then
    redis.call('DEL', key.meta_paused)
    redis.call('HDEL', key.meta, 'paused')
    redis.call('PUBLISH', key.resumed, 'resumed')
  end
  return left
end)
