-- @include {dialect}/lib: delay_job

-- Delays those jobs {id, until (ms)} that are in the set `mine`.
local function delay_jobs(key, delayed, mine, now)
  for _, job in ipairs(delayed) do
    if mine[job.id] then
      delay_job(key, job.id, math.max(job['until'], now))
    end
  end
end
