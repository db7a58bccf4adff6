-- @include lib: clear_delay next_due_of priority_of walk_steps(WALK_STEPS)
-- @include bull/lib: insert_by_priority waiting_list
-- @include {dialect}/lib: announce_waiting

-- Promotes delayed jobs of Bull that are due, `limit` at most, in the order in which they are due; with priorities as
-- many as the length of the list allows. Returns when the next one is due, ms, or false, and how many it has promoted.
local function promote_due_jobs(key, arg, now, limit)
  local call = redis.call
  local target = waiting_list(key)
  local due = call('ZRANGEBYSCORE', key.delayed, '-inf', (now + 1) * 4096 - 1, 'LIMIT', 0, limit)
  local plain, moved, walked, length = {}, 0, 0, call('LLEN', target)
  local function push()
    if #plain > 0 then
      call('LPUSH', target, unpack(plain))
      plain = {}
    end
  end
  for _, id in ipairs(due) do
    if walked > WALK_STEPS then
      break
    end
    local job_key = arg.base .. id
    local priority = priority_of(job_key)
    if priority > 0 then
      push()
      insert_by_priority(key, target, id, priority)
      walked = walked + length + moved
    else
      plain[#plain + 1] = id
    end
    announce_waiting(key, arg, id)
    clear_delay(job_key)
    moved = moved + 1
  end
  push()
  if moved > 0 then
    call('ZREM', key.delayed, unpack(due, 1, moved))
  end
  local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
  if moved > 0 and first[2] then
    call('PUBLISH', key.delayed, tonumber(first[2]) / 4096)
  end
  return next_due_of(key.delayed), moved
end
