-- @include lib: push_of
-- @include bull/lib: waiting_list
-- @include {dialect}/lib: announce_waiting clear_outcome finished_state

-- Moves a failed job back to the waiting ones. `change`: {id, reset_attempts: whether its attempts count from 0 again,
-- lifo: whether it is the next one, nil: by its options}. The job does not expire any more.
-- Returns 'done', 'missing', 'locked' or 'wrong_state' (not failed).
local function retry_job(key, arg, change)
  local call, id, job_key, lifo = redis.call, change.id, arg.base .. change.id, change.lifo
  if call('EXISTS', job_key) == 0 then
    return 'missing'
  end
  local opts = call('HGET', job_key, 'opts')
  if call('EXISTS', job_key .. ':lock') == 1 then
    return 'locked'
  end
  if call(finished_state.take, key.failed, id) == 0 then
    return 'wrong_state'
  end
  call('HDEL', job_key, 'expireAt')
  if change.reset_attempts then
    call('HSET', job_key, 'attemptsMade', '0')
  end
  call(lifo == nil and push_of(opts) or lifo and 'RPUSH' or 'LPUSH', waiting_list(key), id)
  clear_outcome(job_key)
  announce_waiting(key, arg, id)
  return 'done'
end
