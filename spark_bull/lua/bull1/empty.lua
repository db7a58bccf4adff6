-- Removes the next jobs of a queue that a registered write replaces, and in the end all that the queue
-- has, but no more once that is done: the jobs behind are the write's own.
-- @keys receipt write wait paused active delayed completed failed id meta_paused
-- @args base call ttl_ms limit move
-- @returns 'open' (call again) or 'done'
-- @include obliterate_bull1
-- @include once
-- @include replacing

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if not is_replacing(key.write) then
    return 'done'
  end
  local state = obliterate_queue(key, arg)
  if state == 'done' then
    redis.call('HSET', key.write, 'emptied', 1)
  end
  return state
end)
