-- @include lib: push_of whole_number
-- @include bullmq/lib: allow_wrongtype emit_trimmed enqueue_job major_version meta_of

-- The field with the result or error of a finished job, by its state.
local OUTCOME_OF = {failed = 'failedReason', completed = 'returnvalue'}

local ATTEMPTS = {'atm', 'ats'}

-- Does not move the parent, which may have left `waiting-children`.
local function return_to_parent(job_key, parent_key, from)
  local call, removed = redis.call, 0
  if from == 'failed' then
    removed = call('ZREM', parent_key .. ':unsuccessful', job_key) + call('HDEL', parent_key .. ':failed', job_key)
  else
    removed = call('HDEL', parent_key .. ':processed', job_key)
  end
  if removed > 0 then
    call('SADD', parent_key .. ':dependencies', job_key)
  end
end

-- Moves a finished job back to the waiting ones, and back into the dependencies of its parent. `change`: as in bull/lib,
-- and `from`: the state of the job, completed or else failed. It does not expire any more.
-- Returns 'done', 'missing' or 'wrong_state'.
local function retry_job(key, arg, change)
  local call, job_id, from, lifo = redis.call, change.id, change.from or 'failed', change.lifo
  local job_key = arg.base .. job_id
  local fields = call('HMGET', job_key, 'opts', 'parentKey', 'priority')
  if not fields[1] and call('EXISTS', job_key) == 0 then
    return 'missing'
  end
  if not OUTCOME_OF[from] or call('ZREM', from == 'failed' and key.failed or key.completed, job_id) == 0 then
    return 'wrong_state'
  end
  call('HDEL', job_key, 'finishedOn', 'processedOn', 'expireAt', OUTCOME_OF[from], unpack(change.reset_attempts and ATTEMPTS or {}))
  -- In BullMQ 5 the job loses its priority.
  local major = major_version(meta_of(key)[3], arg.bullmq_version)
  local push = lifo == nil and push_of(fields[1]) or lifo and 'RPUSH' or 'LPUSH'
  enqueue_job(key, arg.bullmq_version, job_id, major > 5 and whole_number(fields[3]) or 0, push)
  if fields[2] and call('EXISTS', fields[2]) == 1 then
    allow_wrongtype(return_to_parent, job_key, fields[2], from)
  end
  emit_trimmed(key, arg, 'waiting', 'jobId', job_id, 'prev', from)
  return 'done'
end
