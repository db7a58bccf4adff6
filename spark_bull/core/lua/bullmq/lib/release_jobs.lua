-- @include bullmq/lib: event_limit release_parent

-- Moves those of some waiting parents that have no unfinished child to the waiting or, if they have a delay, the
-- delayed jobs, in their order.
local function release_jobs(key, arg, ids, now)
  for _, id in ipairs(ids) do
    local job_key = arg.base .. id
    if redis.call('SCARD', job_key .. ':dependencies') == 0 then
      release_parent(key, arg, job_key, id, key.waiting_children, now, 'LPUSH')
    end
  end
  redis.call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
end
