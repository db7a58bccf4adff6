-- Removes the next jobs of a queue, whatever their state, and in the end the queue itself; first it is
-- paused. Staged chunks and writes are not the queue's, and stay.
-- @keys receipt wait paused active delayed completed failed id meta_paused
-- @args base call ttl_ms limit move force
-- @returns {'open'} (call again), {'done'}, or {'active', how many jobs are} unless `force`
-- @include obliterate
-- @include once
-- @include pause_bull1
-- @include remove_bull1

local function remove(ids)
  remove_jobs(key, arg, ids)
end

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local active = redis.call('LLEN', key.active)
  if active > 0 and arg.force ~= '1' then
    return {'active', active}
  end
  if pause_queue(key, tonumber(arg.move)) > 0 then
    return {'open'}
  end
  return {obliterate({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, 'set', remove},
    {key.failed, 'set', remove},
  }, {key.id, key.meta_paused}, tonumber(arg.limit))}
end)
