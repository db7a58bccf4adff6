-- @include lib: keys_at
-- @include bullmq/lib: emit enqueue_job free_deduplication split_job_key unlink_job

-- Removes a deleted job from the dependencies of its parent. A parent that has no dependencies left becomes the next
-- job, even if others have a higher priority, as in Node; with `together` (many jobs are deleted at once), a parent of
-- the same queue is deleted, too, and leaves its own parent; a relay is marked to do the same to its dependents.
-- Returns whether the job was among the dependencies, and how many parents were deleted. It is a loop, as a sequence
-- can have more jobs than Lua's stack.
local function leave_parent(key, arg, job_key, parent_key, together)
  local call, was_child, deleted = redis.call, false, 0
  while parent_key and call('EXISTS', parent_key) == 1
    and call('SREM', parent_key .. ':dependencies', job_key) == 1 do
    was_child = true
    local base, parent_id = split_job_key(arg, parent_key)
    local keys = keys_at(key, arg, base)
    if call('SCARD', parent_key .. ':dependencies') > 0 or call('ZREM', keys.waiting_children, parent_id) == 0 then
      break
    end
    if not (together and base == arg.base) then
      enqueue_job(keys, arg.bullmq_version, parent_id, 0, 'RPUSH')
      if together and base == key.relays .. ':' then
        call('HSET', parent_key, 'removed', '1')
      elseif not together then
        emit(keys, arg, 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
      end
      break
    end
    local fields = call('HMGET', parent_key, 'parentKey', 'deid')
    free_deduplication(base, parent_id, fields[2])
    unlink_job(parent_key)
    deleted = deleted + 1
    job_key, parent_key = parent_key, fields[1]
  end
  return was_child, deleted
end
