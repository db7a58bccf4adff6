-- @include bull/lib/delay_job

-- Delays jobs {id, until (ms)} whose processors asked for it; those not in the set `mine` are left alone.
local function delay_jobs(key, delayed, mine, now)
  for _, job in ipairs(delayed) do
    if mine[job.id] then
      delay_job(key, job.id, math.max(job['until'], now))
    end
  end
end
