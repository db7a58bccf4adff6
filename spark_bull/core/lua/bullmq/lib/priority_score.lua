-- The score of a prioritized job: its priority, then its place (of the counter `pc`) among the jobs of that priority.
local function priority_score(priority, place)
  return priority * 4294967296 + place % 4294967296
end
