-- @include bullmq/lib: priority_score waiting_list

-- The markers that this script has set.
local MARKED = {}

-- Adds a job to the prioritized ones, or to the end of the waiting list that `push` means, and sets the marker.
local function enqueue_job(key, version, job_id, priority, push)
  local target, paused_or_full = waiting_list(key, version)
  if priority > 0 then
    redis.call('ZADD', key.prioritized, priority_score(priority, redis.call('INCR', key.pc)), job_id)
  else
    redis.call(push, target, job_id)
  end
  if not paused_or_full and not MARKED[key.marker] then
    redis.call('ZADD', key.marker, 0, '0')
    MARKED[key.marker] = true
  end
end
