-- @include {dialect}/lib: finished_state remove_jobs

-- Removes one job from its state, and its keys. Returns 'done' (also when only the id existed), 'missing' or 'locked'.
local function remove_job(key, arg, job_id)
  local call, take, job_key = redis.call, finished_state.take, arg.base .. job_id
  if call('EXISTS', job_key .. ':lock') == 1 then
    return 'locked'
  end
  local gone = call(take, key.completed, job_id) + call(take, key.failed, job_id) + call('ZREM', key.delayed, job_id)
  if gone == 0 then
    for _, list in ipairs({key.active, key.wait, key.paused}) do
      gone = gone + call('LREM', list, 0, job_id)
    end
  end
  if gone == 0 and call('EXISTS', job_key) == 0 then
    return 'missing'
  end
  remove_jobs(key, arg, {job_id})
  return 'done'
end
