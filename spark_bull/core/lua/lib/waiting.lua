-- Jobs wait, or are promoted.
-- @include lib: once rescue(next_expiry_of) values(time_ms)

-- How many waiting jobs may come before a job that is promoted because there is a place for it in its group. So it comes
-- after jobs of other groups that have waited for longer, but not after a long backlog.
local JOBS_BEFORE = 100

-- Adds jobs to a list of waiting ones, in this order, behind the next ones.
local function insert_near(list, ids)
  local before = call('LRANGE', list, -JOBS_BEFORE, -1)
  if #before < JOBS_BEFORE then
    call('LPUSH', list, unpack(ids))
    return
  end
  local pushed = {}
  for i = #ids, 1, -1 do
    pushed[#pushed + 1] = ids[i]
  end
  call('LTRIM', list, 0, -JOBS_BEFORE - 1)
  call('RPUSH', list, unpack(pushed))
  call('RPUSH', list, unpack(before))
end

-- How many of the next waiting jobs are searched for one.
local NEXT_JOBS = 1000

-- Whether a job is one of the next ones of the queue.
local function waits(key, id)
  return call('LPOS', key.wait, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
    or call('LPOS', key.paused, id, 'RANK', -1, 'MAXLEN', NEXT_JOBS)
end

-- Merges `wait` and `paused` into one list and renames it to `target`; jobs of `paused` come first, as they are older.
-- The shorter list is moved into the longer one, `limit` jobs per call; no list is renamed over another one.
-- Returns the number of jobs left in the shorter one.
local function join_lists(key, target, limit)
  local waiting, paused = call('LLEN', key.wait), call('LLEN', key.paused)
  local moved = {}
  if waiting > paused then
    moved = call('LRANGE', key.paused, 0, limit - 1)
    if #moved > 0 then
      call('RPUSH', key.wait, unpack(moved))
      call('LTRIM', key.paused, #moved, -1)
    end
  else
    local last = call('LRANGE', key.wait, -limit, -1)
    for i = #last, 1, -1 do
      moved[#moved + 1] = last[i]
    end
    if #moved > 0 then
      call('LPUSH', key.paused, unpack(moved))
      call('LTRIM', key.wait, 0, -#moved - 1)
    end
  end
  local left = math.min(waiting, paused) - #moved
  local other = target == key.wait and key.paused or key.wait
  if left == 0 and call('EXISTS', other) == 1 then
    call('RENAME', other, target)
  end
  return left
end

-- Ids collected for the two ends of a list and pushed with one command each, as pushes to one end do not change the
-- order at the other.
local function new_pushes()
  return {newest = {}, next = {}}
end

local function gather_push(pushes, job_id, lifo)
  local ids = lifo and pushes.next or pushes.newest
  ids[#ids + 1] = job_id
end

local function flush_pushes(pushes, list)
  if #pushes.newest > 0 then
    call('LPUSH', list, unpack(pushes.newest))
    pushes.newest = {}
  end
  if #pushes.next > 0 then
    call('RPUSH', list, unpack(pushes.next))
    pushes.next = {}
  end
end

local push = {new = new_pushes, gather = gather_push, flush = flush_pushes}

-- Maximum number of list entries that one script lets Redis search (about 5 ms).
local WALK_STEPS = 250000

-- Number of entries at the end of a list, from which jobs are claimed, that are searched first.
local NEAR = 1000

-- How many entries have to be searched for an id in some lists: few when it is one of the next ones.
local function search_steps(lists, id)
  local steps = 0
  for _, list in ipairs(lists) do
    if call('LPOS', list, id, 'RANK', -1, 'MAXLEN', NEAR) then
      return steps + NEAR
    end
    steps = steps + call('LLEN', list)
  end
  return steps
end

-- Delayed jobs that wait from now on.

-- Notes that a job is delayed no more. One that is gone must not get a field.
local function clear_delay(job_key)
  if call('EXISTS', job_key) == 1 then
    redis.pcall('HSET', job_key, 'delay', '0')
  end
end

-- When the first delayed job is due, ms since 1970; false when there is none, or its score is no valid time.
-- (Redis formats numbers among arguments with 17 digits, which takes longer than texts.)
local function next_due_of(delayed)
  local score = tonumber(call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2])
  return score and score < 9007199254740992 and math.max(0, math.floor(score / 4096)) or false
end

-- Promotes delayed jobs that are due, once per call of a sender. Promotes none while jobs have expired and the script
-- `expire` has not run yet (`after_expiry`), as it would move some of them. `promote(now)` returns when the next one is due, ms, or false, and how many it has promoted.
-- Returns {number of promoted jobs, when the next one is due or expires, ms, or '', now in ms}.
local function promote_due_once(key, arg, promote)
  local now = time_ms()
  return once(key.receipt, arg.call, arg.ttl_ms, function()
    local next_due, moved, next_expiry = false, 0, next_expiry_of(key.expiry)
    if arg.after_expiry == '1' or not next_expiry or next_expiry > now then
      next_due, moved = promote(now)
    end
    if next_expiry then
      next_due = math.min(next_due or math.huge, next_expiry)
    end
    return {moved, next_due and string.format('%.0f', next_due) or '', string.format('%.0f', now)}, moved == 0
  end)
end
