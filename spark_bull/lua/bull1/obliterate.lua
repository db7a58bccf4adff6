-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay.
-- @keys receipt wait paused active delayed completed failed id meta_paused
-- @args base call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include obliterate_bull1
-- @include once

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local active = redis.call('LLEN', key.active)
  if active > 0 and arg.force ~= '1' then
    return {'active', active}
  end
  return {obliterate_queue(key, arg)}
end)
