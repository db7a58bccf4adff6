-- @include lib: clear_delay priority_of
-- @include bull/lib: insert_by_priority waiting_list
-- @include {dialect}/lib: announce_waiting

-- Makes a job wait that has left `delayed`, at the place of its priority.
local function enqueue_promoted(key, arg, job_id)
  local job_key, target = arg.base .. job_id, waiting_list(key)
  local priority = priority_of(job_key)
  if priority > 0 then
    insert_by_priority(key, target, job_id, priority)
  else
    redis.call('LPUSH', target, job_id)
  end
  announce_waiting(key, arg, job_id)
  clear_delay(job_key)
end
