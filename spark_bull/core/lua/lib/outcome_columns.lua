-- The completed jobs of outcomes as lists {ids, keys, values, keeps}, with `value` instead of `values` if they all have
-- the same. `others`: the ids of jobs with another outcome; `all`: the ids of all jobs.
local function outcome_columns(base, outcomes)
  local ids, keys, others = outcomes.ids or {}, {}, {}
  for i = 1, #ids do
    keys[i] = base .. ids[i]
  end
  for _, group in ipairs({'failed', 'retried', 'delayed', 'rested'}) do
    for _, job in ipairs(outcomes[group] or {}) do
      others[#others + 1] = job.id
    end
  end
  for _, group in ipairs({'returned', 'unstarted', 'waiting_for_children'}) do
    for _, id in ipairs(outcomes[group] or {}) do
      others[#others + 1] = id
    end
  end
  local jobs = {
    ids = ids,
    keys = keys,
    others = others,
    all = {unpack(ids)},
    keeps = outcomes.keeps or {},
  }
  for _, id in ipairs(others) do
    jobs.all[#jobs.all + 1] = id
  end
  if type(outcomes.values) == 'table' then
    jobs.values = outcomes.values
  else
    jobs.value = outcomes.values
  end
  if outcomes.keep then
    for i = 1, #ids do
      jobs.keeps[i] = outcomes.keep
    end
  end
  return jobs
end
