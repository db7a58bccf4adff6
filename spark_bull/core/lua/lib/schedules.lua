-- Job schedulers and their next jobs.
-- @include lib: once

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

-- Removes the job schedulers in `arg.members`, unless this call was answered before. Calls `remove_job(job_id)` for each
-- next job that was delayed, and `forget(member)`, if given, for each scheduler. `next_id(member, next_ms)`, if given:
-- the id of the next job. Returns the number of job schedulers.
local function unschedule_once(key, arg, remove_job, forget, next_id)
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local removed = 0
    for i = 1, #arg.members, 2 do
      local member, next_ms = arg.members[i], call('ZSCORE', key.repeats, arg.members[i])
      local job_id = next_ms and (next_id and next_id(member, next_ms) or arg.members[i + 1] .. next_ms)
      if job_id and call('ZREM', key.delayed, job_id) == 1 then
        remove_job(job_id)
      end
      if call('ZREM', key.repeats, member) == 1 then
        removed = removed + 1
        if forget then
          forget(member)
        end
      end
    end
    return removed
  end)
end
