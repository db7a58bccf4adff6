-- The settled jobs (of the set `mine`) that wait again.
local function waiting_again(outcomes, mine)
  local ids = {}
  for _, job in ipairs(outcomes.retried or {}) do
    ids[#ids + 1] = mine[job.id] and job.delay <= 0 and job.id or nil
  end
  for _, kind in ipairs({'returned', 'unstarted'}) do
    for _, id in ipairs(outcomes[kind] or {}) do
      ids[#ids + 1] = mine[id] and id or nil
    end
  end
  return ids
end
