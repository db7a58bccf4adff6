-- @include bull/lib: priority_inserts waiting_list

-- Changes the priority of a job; one that may wait takes its new place, the first of that priority with `lifo`.
local function prioritize_job(key, change, may_wait)
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
