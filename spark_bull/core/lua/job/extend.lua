-- Extends the locks that hold `lock_token`, and unmarks these jobs as possibly stalled.
-- @args ids...
-- @returns ids of the jobs whose lock no longer holds the token

local locks, ours, lost = {}, {}, {}
for i, id in ipairs(arg.ids) do
  locks[i] = arg.base .. id .. ':lock'
end
local held = call('MGET', unpack(locks))
for i, id in ipairs(arg.ids) do
  if held[i] == arg.lock_token then
    call('PEXPIRE', locks[i], arg.lock_ms)
    ours[#ours + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #ours > 0 then
  call('SREM', key.stalled, unpack(ours))
end
return lost
