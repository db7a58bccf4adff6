-- @include lib: job_row
-- @include {dialect}/lib: leave_wait

-- Deletes the keys of jobs that have left their state, and frees their debounce ids, as Bull does even if another job
-- has the id. Jobs that `finished` no longer have a priority or a place in a rate limited group, and have freed their
-- debounce ids unless those have a TTL.
local function remove_jobs(key, arg, ids, finished)
  local call = redis.call
  if not finished then
    leave_wait(key, ids)
    for _, job_id in ipairs(ids) do
      local row = job_row(arg.base .. job_id, 'deid')
      if row and row[1] then
        call('UNLINK', arg.base .. 'de:' .. row[1])
      end
    end
  end
  for _, job_id in ipairs(ids) do
    local job_key = arg.base .. job_id
    call('UNLINK', job_key, job_key .. ':lock', job_key .. ':logs')
  end
end
