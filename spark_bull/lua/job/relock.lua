-- Locks those jobs for `lock_token` that are active and have no lock.
-- @args base lock_token lock_ms ids...
-- @returns number of jobs locked

local call, locked = redis.call, 0
for _, id in ipairs(arg.ids) do
  local lock = arg.base .. id .. ':lock'
  if call('EXISTS', lock) == 0 and call('LPOS', key.active, id) then
    call('SET', lock, arg.lock_token, 'PX', arg.lock_ms)
    locked = locked + 1
  end
end
return locked
