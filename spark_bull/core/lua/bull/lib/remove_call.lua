-- @include lib: search_steps
-- @include bull/lib: remove_job

-- As in bullmq/lib.
local function remove_call(key, arg, job_id, steps, is_first)
  if not redis.call('ZSCORE', key.delayed, job_id) then
    steps = steps - search_steps({key.active, key.wait, key.paused}, job_id)
  end
  if steps >= 0 or is_first then
    remove_job(key, arg, job_id)
  end
  return steps
end
