-- @include bullmq/lib/enqueue_job
-- @include bullmq/lib/unlink_job
-- @include lib/keys_at

-- Parents and children refer to each other by the keys of their hashes, in any queue.
-- Returns the base of the queue's keys, and the job's id. The name of a queue has no ':', an id can have some.
local function split_job_key(arg, job_key)
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  if string.sub(job_key, 1, #prefix) == prefix then
    local queue, job_id = string.match(job_key, '^([^:]*:)(.*)$', #prefix + 1)
    if queue then
      return prefix .. queue, job_id
    end
  end
  return string.match(job_key, '^(.*:)(.*)$')
end

-- A removed job releases its deduplication id, if it owns it.
local function free_deduplication(base, job_id, deduplication_id)
  local holder = deduplication_id and base .. 'de:' .. deduplication_id
  if holder and redis.pcall('GET', holder) == job_id then
    redis.call('UNLINK', holder, base .. 'dn:' .. deduplication_id)
  end
end

-- Removes a deleted job from the dependencies of its parent. A parent without further dependencies becomes the next job,
-- whatever its priority, as in Node; with `together` (many jobs are deleted at once), a parent of the same queue is
-- deleted, too, and leaves its own parent. Returns whether the job was among the dependencies. A loop, as a sequence can have more jobs than Lua's stack.
local function leave_parent(key, arg, job_key, parent_key, together)
  local call, was_child = redis.call, false
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
      if not together then
        call('XADD', keys.events, '*', 'event', 'waiting', 'jobId', parent_id, 'prev', 'waiting-children')
      end
      break
    end
    local fields = call('HMGET', parent_key, 'parentKey', 'deid')
    free_deduplication(base, parent_id, fields[2])
    unlink_job(parent_key)
    job_key, parent_key = parent_key, fields[1]
  end
  return was_child
end
