-- How long the jobs that are given back limit the queue, ms; 0 if all of these outcomes were rejected. `mine`: the
-- settled jobs.
local function limited_by(outcomes, mine)
  for _, id in ipairs(outcomes.returned or {}) do
    if mine[id] then
      return outcomes.limited_ms or 0
    end
  end
  return 0
end
