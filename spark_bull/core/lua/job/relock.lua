-- Locks those jobs for `lock_token` that are active and have no lock, or hold the token for a shorter time.
-- @args ids...
-- @returns number of jobs locked

local locked = 0
for _, id in ipairs(arg.ids) do
  local lock = arg.base .. id .. ':lock'
  local holder = call('GET', lock)
  local is_ours = holder == arg.lock_token and call('PTTL', lock) < tonumber(arg.lock_ms)
  if is_ours or (not holder and call('LPOS', key.active, id)) then
    call('SET', lock, arg.lock_token, 'PX', arg.lock_ms)
    locked = locked + 1
  end
end
return locked
