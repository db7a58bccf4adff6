-- @include lib/obliterate

-- Pauses a queue of Bull, then removes its next jobs, whatever their state, and finally the `rest` of its keys.
-- `finished`: type of `completed` and `failed`.
-- Returns 'open' while there is more to remove, then 'done'.
local function obliterate_bull(key, arg, pause_queue, remove_jobs, finished, rest)
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
    {key.completed, finished, remove},
    {key.failed, finished, remove},
    {key.damaged, 'hash', remove},
  }, rest, tonumber(arg.limit))
end
