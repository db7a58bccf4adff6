-- Asks the slots that hold some jobs to cancel them. A request names the lock's token and the time: it does not apply to a
-- later attempt.
-- @args ids...
-- @returns for each job 'done', 'missing', 'unlocked', or 'foreign' when no slot of a Spark worker holds the lock
-- @include lib: values(time_ms)

local now, answers, requests = time_ms(), {}, {}
for i, id in ipairs(arg.ids) do
  local job_key = arg.base .. id
  -- MGET: a lock of another type is none.
  local token = call('MGET', job_key .. ':lock')[1]
  if call('EXISTS', job_key) == 0 then
    answers[i] = 'missing'
  elseif not token then
    answers[i] = 'unlocked'
  elseif not string.match(token, '^%x+:%d+:%x+$') then
    -- A token of a slot is <worker>:<slot>:<call>, see core/queue/work/claim.py and run/slot/slot_queue.py.
    answers[i] = 'foreign'
  else
    answers[i] = 'done'
    requests[#requests + 1] = id
    requests[#requests + 1] = cmsgpack.pack({token, now, arg.reason})
  end
end
if #requests > 0 then
  call('HSET', key.cancels, unpack(requests))
  call('PEXPIRE', key.cancels, arg.ttl_ms)
end
return answers
