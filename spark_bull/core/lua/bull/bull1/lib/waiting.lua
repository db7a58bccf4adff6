-- Jobs wait or are promoted, or the queue is paused.
-- @include lib: waiting(insert_near join_lists)
-- @include bull/lib: waiting(waiting_list)

-- Publishes that a job waits.
local function announce_waiting(key, _, job_id)
  call('PUBLISH', key.jobs, job_id)
end

-- Makes a job wait that has left `delayed`.
local function enqueue_promoted(key, _, job_id)
  call('LPUSH', waiting_list(key), job_id)
end

-- Makes delayed jobs of groups wait behind the next jobs, in this order, and publishes them.
local function promote_group(key, arg, ids)
  call('ZREM', key.delayed, unpack(ids))
  insert_near(waiting_list(key), ids)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end

-- Pauses a queue by moving its jobs to `paused`, which workers do not read. `repeats`: whether the event is also
-- published if the queue is paused already. A pause of a guard becomes one that no guard ends; see lib/guard.lua.
-- Returns the number of jobs still to be moved.
local function pause_queue(key, _, limit, repeats)
  local is_new = call('EXISTS', key.meta_paused) == 0
  call('SET', key.meta_paused, 1)
  if is_new or repeats then
    call('PUBLISH', key.paused, 'paused')
  end
  return join_lists(key, key.paused, limit)
end

local function resume_queue(key)
  call('DEL', key.meta_paused)
  call('PUBLISH', key.paused, 'resumed')
end

-- As in bull/lib: Bull 1 has no priorities, and no groups in its limiter.
local function leave_wait() end
