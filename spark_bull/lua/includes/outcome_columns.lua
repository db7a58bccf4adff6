-- What outcomes say about completed jobs, and the ids of all jobs in them. `made_before(id)` reads how many attempts a job
-- has had with this one, where the worker didn't say.
local function outcome_columns(outcomes, made_before)
  local jobs = {ids = outcomes.ids or {}, values = outcomes.values or {}, all = {}}
  for _, id in ipairs(jobs.ids) do
    jobs.all[#jobs.all + 1] = id
  end
  for _, group in ipairs({'failed', 'retried', 'delayed'}) do
    for _, job in ipairs(outcomes[group] or {}) do
      jobs.all[#jobs.all + 1] = job.id
    end
  end
  for _, id in ipairs(outcomes.returned or {}) do
    jobs.all[#jobs.all + 1] = id
  end
  local keeps, made = outcomes.keeps, outcomes.made
  function jobs.keep(i)
    local keep = keeps and keeps[i] or outcomes.keep
    return keep and next(keep) and keep or nil
  end
  function jobs.made(i, id)
    return type(made) == 'table' and made[i] or made or made_before(id)
  end
  local kin
  if outcomes.kin then
    kin = {}
    for _, id in ipairs(outcomes.kin) do
      kin[id] = true
    end
  end
  function jobs.has_kin(id)
    return not kin or kin[id]
  end
  return jobs
end
