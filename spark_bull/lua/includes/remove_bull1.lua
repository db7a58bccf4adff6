-- Deletes what jobs that left their state have.
local function remove_jobs(_, arg, ids)
  for _, job_id in ipairs(ids) do
    redis.call('UNLINK', arg.base .. job_id, arg.base .. job_id .. ':lock')
  end
end
