-- @include lib: clear_delay priority_of
-- @include bullmq/lib: emit enqueue_job

-- Makes a job wait that has left `delayed`.
local function enqueue_promoted(key, arg, job_id)
  local job_key = arg.base .. job_id
  enqueue_job(key, arg.bullmq_version, job_id, priority_of(job_key), 'LPUSH')
  emit(key, arg, 'waiting', 'jobId', job_id, 'prev', 'delayed')
  clear_delay(job_key)
end
