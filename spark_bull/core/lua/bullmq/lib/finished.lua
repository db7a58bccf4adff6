-- @include lib: finished(finished_set)
-- @include bullmq/lib: parents(allow_wrongtype leave_parent unlink_job)

local function finished_of(key, arg, state, now)
  return finished_set.new(state, now, function(job_id)
    local job_key = arg.base .. job_id
    local parent_key = redis.pcall('HGET', job_key, 'parentKey')
    if type(parent_key) == 'string' then
      allow_wrongtype(leave_parent, key, arg, job_key, parent_key, false)
    end
    unlink_job(job_key)
  end)
end
