-- A text of the counts and ends of the queue's lists. It changes when a job finishes, as the job leaves `active`.
local function sign_of(key)
  local call = redis.call
  return table.concat({
    tostring(call('GET', key.id)), call('SCARD', key.completed), call('SCARD', key.failed), call('ZCARD', key.delayed),
    call('LLEN', key.paused), call('LLEN', key.wait), tostring(call('LINDEX', key.wait, 0)),
    tostring(call('LINDEX', key.wait, -1)), call('LLEN', key.active), tostring(call('LINDEX', key.active, 0)),
    tostring(call('LINDEX', key.active, -1)),
  }, ' ')
end
