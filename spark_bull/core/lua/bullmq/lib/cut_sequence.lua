-- @include bullmq/lib: allow_wrongtype free_deduplication split_job_key unlink_job

-- How many ancestors a script may still delete.
local ancestors_left = 100

-- Whether a parent is of the same queue and waits for `child_key` alone; and its id.
local function is_next_of_sequence(key, arg, child_key, parent_key)
  local call, base, parent_id = redis.call, split_job_key(arg, parent_key)
  local children = parent_key .. ':dependencies'
  return base == arg.base and call('SCARD', children) == 1 and call('SISMEMBER', children, child_key) == 1
    and call('ZSCORE', key.waiting_children, parent_id), parent_id
end

local function cut(key, arg, job_key)
  local call, child_key, is_open = redis.call, job_key, false
  local parent_key, parent = unpack(call('HMGET', job_key, 'parentKey', 'parent'))
  while parent_key do
    local is_next, parent_id = is_next_of_sequence(key, arg, child_key, parent_key)
    is_open = is_next and ancestors_left == 0
    if not is_next or is_open then
      break
    end
    ancestors_left = ancestors_left - 1
    local fields = call('HMGET', parent_key, 'parentKey', 'parent', 'deid')
    call('ZREM', key.waiting_children, parent_id)
    free_deduplication(arg.base, parent_id, fields[3])
    unlink_job(parent_key)
    child_key, parent_key, parent = parent_key, fields[1], fields[2]
  end
  if child_key ~= job_key and parent_key then
    -- A worker that claims the job now lets the next ancestor start.
    if call('SREM', parent_key .. ':dependencies', child_key) == 1 then
      call('SADD', parent_key .. ':dependencies', job_key)
    end
    call('HSET', job_key, 'parentKey', parent_key, 'parent', parent or '')
  elseif child_key ~= job_key then
    call('HDEL', job_key, 'parentKey', 'parent')
  end
  return is_open
end

-- Deletes the ancestors that are to be removed with a job, as in a sequence: each one is of the same queue and waits
-- only for the one before it. At most 100 in one script; the job becomes the child of the next one. Returns
-- whether there are more: the job must stay until a later script has deleted them.
local function cut_sequence(key, arg, job_id)
  local is_open = false
  allow_wrongtype(function()
    is_open = cut(key, arg, arg.base .. job_id)
  end)
  return is_open
end
