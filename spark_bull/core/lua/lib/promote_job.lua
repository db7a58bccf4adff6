-- @include {dialect}/lib: enqueue_promoted

-- Moves a delayed job to the waiting ones.
-- Returns 'done', 'missing' (its id has left `delayed`) or 'wrong_state' (not delayed).
local function promote_job(key, arg, job_id)
  local was_delayed = redis.call('ZREM', key.delayed, job_id) == 1
  if redis.call('EXISTS', arg.base .. job_id) == 0 then
    return 'missing'
  end
  if not was_delayed then
    return 'wrong_state'
  end
  enqueue_promoted(key, arg, job_id)
  return 'done'
end
