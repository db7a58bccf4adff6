-- The completed jobs of outcomes as lists {ids, values, keeps}, and in `all` the ids of all jobs with an outcome.
local function outcome_columns(outcomes)
  local ids = outcomes.ids or {}
  local jobs = {ids = ids, all = {}, values = outcomes.values, keeps = outcomes.keeps or {}}
  for i = 1, #ids do
    jobs.all[i] = ids[i]
  end
  for _, group in ipairs({'failed', 'retried', 'delayed'}) do
    for _, job in ipairs(outcomes[group] or {}) do
      jobs.all[#jobs.all + 1] = job.id
    end
  end
  for _, group in ipairs({'returned', 'unstarted', 'waiting_for_children'}) do
    for _, id in ipairs(outcomes[group] or {}) do
      jobs.all[#jobs.all + 1] = id
    end
  end
  if type(jobs.values) ~= 'table' then
    jobs.values = {}
    for i = 1, #ids do
      jobs.values[i] = outcomes.values
    end
  end
  if outcomes.keep then
    for i = 1, #ids do
      jobs.keeps[i] = outcomes.keep
    end
  end
  return jobs
end
