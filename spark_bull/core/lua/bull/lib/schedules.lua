-- @include lib: schedules(next_job)
-- @include {dialect}/lib: add_jobs

-- Creates or changes the job schedulers of a chunk from row `from` on. Each one replaces others, whose next jobs are
-- removed if they are delayed.
-- Returns {next = first row not processed, added, duplicates, due, rejected}. `due`: when the next jobs are due, ms, 0
-- for those that are rejected. `rejected`: {row, id of the job that exists}: the next job can't be added, and nothing
-- was changed.
local function upsert_schedules(key, arg, chunk, from, now)
  local due, rejected = {}, {}
  for i = from, chunk.n do
    local row = chunk.schedules[i]
    local is_taken = call('EXISTS', arg.base .. row.job_id) == 1 and not call('ZSCORE', key.delayed, row.job_id)
    if is_taken then
      rejected[#rejected + 1] = {i, row.job_id}
      due[#due + 1] = 0
    else
      for _, old in ipairs(row.replaces) do
        local next_ms = call('ZSCORE', key.repeats, old[1])
        local job_id = next_ms and old[2] .. next_ms
        if job_id and call('ZREM', key.delayed, job_id) == 1 then
          call('DEL', arg.base .. job_id)
        end
        call('ZREM', key.repeats, old[1])
      end
      call('ZADD', key.repeats, row.next, row.key)
      add_jobs(key, arg, next_job(row, row.job_id, row.next, row.name, row.data), 1, now)
      due[#due + 1] = row.next
    end
  end
  return {next = chunk.n + 1, added = chunk.n - from + 1 - #rejected, duplicates = 0, due = due, rejected = rejected}
end
