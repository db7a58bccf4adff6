-- Deletes the keys of jobs that have left their state.
local function remove_jobs(_, arg, ids)
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    -- Bull 1 has no logs, but workers of Spark write them.
    redis.call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs')
  end
end
