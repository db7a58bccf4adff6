-- @include bullmq/lib: delay_job enqueue_job event_limit
-- @include lib: whole_number

-- Moves those of some waiting parents that have no unfinished child to the waiting or, if they have a delay, the
-- delayed jobs, in their order.
local function release_jobs(key, arg, ids, now)
  local call = redis.call
  for _, id in ipairs(ids) do
    local job_key = arg.base .. id
    if call('SCARD', job_key .. ':dependencies') == 0 and call('ZREM', key.waiting_children, id) == 1 then
      local fields = call('HMGET', job_key, 'priority', 'delay')
      local delay = whole_number(fields[2])
      if delay > 0 then
        delay_job(key, id, now + delay)
      else
        enqueue_job(key, arg.bullmq_version, id, whole_number(fields[1]), 'LPUSH')
        call('XADD', key.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'waiting-children')
      end
    end
  end
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
end
