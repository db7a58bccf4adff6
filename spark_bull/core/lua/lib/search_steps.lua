-- Number of entries at the end of a list, from which jobs are claimed, that are searched first.
local NEAR = 1000

-- How many entries have to be searched for an id in some lists: few when it is one of the next ones.
local function search_steps(lists, id)
  local steps = 0
  for _, list in ipairs(lists) do
    if redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', NEAR) then
      return steps + NEAR
    end
    steps = steps + redis.call('LLEN', list)
  end
  return steps
end
