-- @include bull/lib/add_jobs
-- @include bull/lib/enqueue_promoted
-- @include bull/lib/is_in_sorted
-- @include bull/lib/leave_limiter
-- @include bull/lib/priority_inserts
-- @include bull/lib/remove_jobs
-- @include bull/lib/retried
-- @include bull/lib/settle_jobs
-- @include bull/lib/waiting_list
-- @include lib/keep_of

-- The verbs of Bull 3 and 4; see manage_jobs.
local own_verbs = {
  take = 'ZREM',
  is_in = is_in_sorted,
  retried = retried,
  enqueue_promoted = enqueue_promoted,
  remove_jobs = remove_jobs,
  add_jobs = add_jobs,
  settle_jobs = settle_jobs,
  keep_of = keep_of,
}

function own_verbs.left_queue(key, id)
  redis.call('ZREM', key.priority, id)
  leave_limiter(key, {id})
end

-- Changes the priority of a job; one that may wait takes its new place, the first of that priority with `lifo`.
function own_verbs.prioritize(key, change, may_wait)
  local call, target, priority = redis.call, waiting_list(key), change.priority
  if may_wait and call('LREM', target, -1, change.id) == 1 then
    call('ZREM', key.priority, change.id)
    local job = {id = change.id, priority = priority}
    if priority == 0 then
      call(change.lifo and 'RPUSH' or 'LPUSH', target, change.id)
    elseif change.lifo then
      priority_inserts.near(key, target, {job}, 0)
    else
      priority_inserts.many(key, target, {job})
    end
  end
  call('HSET', change.key, 'priority', priority)
end
