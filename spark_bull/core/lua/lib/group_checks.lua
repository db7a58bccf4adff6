-- @include lib: group_own

-- Groups whose delayed jobs may start at a time that no counter has: after a rest, or after a pause or a limit was
-- removed. They are in the ZSET `group_checks`: group -> when a claim promotes delayed jobs of it again.

-- Groups that one call checks, and after how long it checks them again while they have delayed jobs, ms.
local MAX_DUE, AGAIN_MS = 100, 30000

-- Removes the groups that are due, and rests that are over; returns the groups.
local function take_due(key, now)
  local due = redis.call('ZRANGEBYSCORE', key.group_checks, '-inf', now, 'LIMIT', 0, MAX_DUE)
  for _, group in ipairs(due) do
    redis.call('ZREM', key.group_checks, group)
    local own = group_own.of(key, group)
    if own.rests_until and own.rests_until <= now then
      own.rests_until = nil
      group_own.save(key, group, own)
    end
  end
  return due
end

-- Plans the next check of a group, if it rests, or has delayed jobs and is not paused.
local function plan_next(key, group, now)
  local own = group_own.of(key, group)
  local is_delayed = redis.call('ZLEXCOUNT', key.group_delayed, '[' .. group, '(' .. group .. '\255') > 0
  local at = own.rests_until or is_delayed and not own.paused and now + AGAIN_MS
  if at then
    redis.call('ZADD', key.group_checks, at, group)
  else
    redis.call('ZREM', key.group_checks, group)
  end
end

local group_checks = {take_due = take_due, plan_next = plan_next}
