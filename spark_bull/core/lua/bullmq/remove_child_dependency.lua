-- Removes a job from the children of its parent, which starts if it waited for this job alone.
-- @returns {'done'}, {'none'} (it is no unfinished child), {'missing'}, or {'orphan', key of the parent that is missing}
-- @include lib: once
-- @include bullmq/lib: flows(leave_parent)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  if call('EXISTS', key.job) == 0 then
    return {'missing'}
  end
  local parent_key = call('HGET', key.job, 'parentKey')
  if not parent_key then
    return {'none'}
  end
  if call('EXISTS', parent_key) == 0 then
    return {'orphan', parent_key}
  end
  if not leave_parent(key, arg, key.job, parent_key, false) then
    return {'none'}
  end
  call('HDEL', key.job, 'parentKey', 'parent')
  return {'done'}
end)
