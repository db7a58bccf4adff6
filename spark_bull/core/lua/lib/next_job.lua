-- The chunk that adds the next job of a job scheduler. `job`: the argument of `advance`; the others: the next job's.
local function next_job(job, id, ms, name, data)
  return {
    n = 1,
    name = {name},
    data = {data},
    opts = {job.opts},
    job_id = {id},
    run_at = {ms},
    priority = {job.priority},
    lifo = {job.lifo},
    marked = true,
  }
end
