-- Removes the ids that earlier writes have kept and the next jobs of a queue that a registered write replaces, and finally
-- the queue's other keys. Does nothing after that: later jobs belong to the write.
-- @returns 'open' (call again) or 'done'
-- @include lib: once remove(delete_queue) writes(is_replacing)
-- @include {dialect}/lib: remove(obliterate_queue)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if not is_replacing(key.write) then
    return 'done'
  end
  local state = delete_queue(key, arg, obliterate_queue)
  if state == 'done' then
    call('HSET', key.write, 'emptied', 1)
  end
  return state
end)
