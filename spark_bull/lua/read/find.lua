-- Tells which of some ids are in a window of a list. A window, because LPOS blocks Redis for as long as the list is.
-- @keys list
-- @args ids position window
-- @returns {how many ids the window has, those found...}

local wanted = {}
for _, job_id in ipairs(cmsgpack.unpack(arg.ids)) do
  wanted[job_id] = true
end
local first = tonumber(arg.position)
local members = redis.call('LRANGE', key.list, first, first + tonumber(arg.window) - 1)
local answer = {#members}
for _, job_id in ipairs(members) do
  if wanted[job_id] then
    answer[#answer + 1] = job_id
  end
end
return answer
