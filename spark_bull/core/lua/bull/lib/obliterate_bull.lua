-- @include lib: remove_members
-- @include {dialect}/lib: finished_state pause_queue remove_jobs

-- Pauses a queue of Bull and removes a portion of its jobs, in any state; once there are none, the `rest` of its keys.
-- Returns 'open' while there is more to remove, then 'done'.
local function obliterate_bull(key, arg, rest)
  local function remove(ids)
    remove_jobs(key, arg, ids)
  end

  if pause_queue(key, arg, tonumber(arg.move)) > 0 or remove_members({
    {key.delayed, 'zset', remove},
    {key.active, 'list', remove},
    {key.wait, 'list', remove},
    {key.paused, 'list', remove},
    {key.completed, finished_state.kind, remove},
    {key.failed, finished_state.kind, remove},
    {key.damaged, 'hash', remove},
  }, tonumber(arg.limit)) then
    return 'open'
  end
  redis.call('UNLINK', unpack(rest))
  return 'done'
end
