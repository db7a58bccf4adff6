-- Delayed jobs that wait from now on.
-- @include lib: waiting(insert_near)
-- @include bull/lib: waiting(waiting_list)

-- Publishes that a job waits.
local function announce_waiting(key, _, job_id)
  redis.call('PUBLISH', key.jobs, job_id)
end

-- Makes a job wait that has left `delayed`.
local function enqueue_promoted(key, _, job_id)
  redis.call('LPUSH', waiting_list(key), job_id)
end

-- Makes delayed jobs of groups wait behind the next jobs, in this order, and publishes them.
local function promote_group(key, arg, ids)
  redis.call('ZREM', key.delayed, unpack(ids))
  insert_near(waiting_list(key), ids)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end
