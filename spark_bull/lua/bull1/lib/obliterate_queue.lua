-- @include bull1/lib/pause_queue
-- @include bull1/lib/remove_jobs
-- @include lib/obliterate

-- Pauses a queue, then removes its next jobs, whatever their state, and in the end the queue itself.
-- Returns 'open' while there is more to be removed, then 'done'.
local function obliterate_queue(key, arg)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, tonumber(arg.move)) > 0 then
    return 'open'
  end
  return obliterate({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, 'set', remove},
    {key.failed, 'set', remove},
    {key.damaged, 'hash', remove},
  }, {key.id, key.meta_paused, key.rate_limited}, tonumber(arg.limit))
end
