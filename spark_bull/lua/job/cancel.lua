-- Asks the slot that holds a job to cancel it. The request names the lock's token and the time: it does not apply to a
-- later attempt.
-- @returns {'done'}, {'missing'}, {'unlocked'}, or {'foreign'} when no slot of a Spark worker holds the lock
-- @include lib: time_ms

local call = redis.call

if call('EXISTS', key.job) == 0 then
  return {'missing'}
end
local token = call('GET', key.lock)
if not token then
  return {'unlocked'}
end
-- <worker>:<slot>:<call>, see queue/process/claim.py and worker/slot/slot_queue.py.
if not string.match(token, '^%x+:%d+:%x+$') then
  return {'foreign'}
end
call('HSET', key.cancels, arg.job_id, cmsgpack.pack({token, time_ms(), arg.reason}))
call('PEXPIRE', key.cancels, arg.ttl_ms)
return {'done'}
