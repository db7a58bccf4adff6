-- Finds the jobs without a lock in a window of the list of active jobs.
-- @returns {number of ids in the window, ids of jobs without a lock...}

local first = tonumber(arg.position)
local members = call('LRANGE', key.active, first, first + tonumber(arg.window) - 1)
local answer = {#members}
for _, job_id in ipairs(members) do
  if call('EXISTS', arg.base .. job_id .. ':lock') == 0 then
    answer[#answer + 1] = job_id
  end
end
return answer
