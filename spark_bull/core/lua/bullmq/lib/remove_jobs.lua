-- @include lib: job_row
-- @include bullmq/lib: allow_wrongtype free_deduplication leave_parent unlink_job

-- Deletes the keys of jobs that have left their state.
local function remove_jobs(key, arg, ids)
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    local fields = job_row(job_key, 'parentKey', 'deid') or {}
    if fields[1] then
      allow_wrongtype(leave_parent, key, arg, job_key, fields[1], true)
    end
    free_deduplication(arg.base, job_id, fields[2])
    unlink_job(job_key)
  end
end
