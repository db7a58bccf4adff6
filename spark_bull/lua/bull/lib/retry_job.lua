-- @include bull/lib/waiting_list
-- @include lib/push_of

-- Moves a failed job of Bull back to the waiting ones and calls `announce(key, arg, job_id)`. `take`: the command that
-- removes a member of `failed`, ZREM or SREM. `resets`: whether its attempts count from 0 again. `lifo`: whether it is the
-- next one, nil: by its options. The job does not expire any more.
-- Returns 'done', 'missing', 'locked' or 'wrong_state' (not failed).
local function retry_job(key, arg, job_id, take, announce, resets, lifo)
  local call, job_key = redis.call, arg.base .. job_id
  if call('EXISTS', job_key) == 0 then
    return 'missing'
  end
  local opts = call('HGET', job_key, 'opts')
  if call('EXISTS', job_key .. ':lock') == 1 then
    return 'locked'
  end
  if call(take, key.failed, job_id) == 0 then
    return 'wrong_state'
  end
  call('HDEL', job_key, 'expireAt')
  if resets then
    call('HSET', job_key, 'attemptsMade', '0')
  end
  call(lifo == nil and push_of(opts) or lifo and 'RPUSH' or 'LPUSH', waiting_list(key), job_id)
  announce(key, arg, job_id)
  return 'done'
end
