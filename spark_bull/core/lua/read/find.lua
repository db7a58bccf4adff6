-- Of the given ids, finds each that is in a window of a list. (LPOS would block Redis for a time that grows with the
-- list.)
-- @returns {number of ids in the window, ids found...}

local wanted = {}
for _, job_id in ipairs(cmsgpack.unpack(arg.ids)) do
  wanted[job_id] = true
end
local first = tonumber(arg.position)
local members = call('LRANGE', key.list, first, first + tonumber(arg.window) - 1)
local answer = {#members}
for _, job_id in ipairs(members) do
  if wanted[job_id] then
    answer[#answer + 1] = job_id
  end
end
return answer
