-- Removes the ids that writes have kept, pauses a queue and removes a portion of its jobs, in any state; once there are
-- none, removes the queue's other keys. Staged chunks and writes stay. So do parents of BullMQ that wait for children of another queue.
-- @returns {'open'} (call again), {'done'}, or {'active', number of active jobs} unless `force`
-- @include lib: once remove(delete_queue)
-- @include {dialect}/lib: remove(obliterate_queue)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local active = call('LLEN', key.active)
  if active > 0 and arg.force ~= '1' then
    return {'active', active}
  end
  return {delete_queue(key, arg, obliterate_queue)}
end)
