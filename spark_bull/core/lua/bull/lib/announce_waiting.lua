-- @include bull/lib: publish

-- Publishes that a job waits.
local function announce_waiting(_, arg, job_id)
  publish(arg, 'waiting', arg.base .. 'waiting@' .. arg.token, job_id)
end
