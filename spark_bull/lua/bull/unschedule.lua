-- Removes schedules, and their next jobs if these are delayed. `members`: of the ZSET of schedules, and the start of
-- the ids of their jobs, in turn.
-- @args base call ttl_ms members...
-- @returns how many schedules were removed
-- @include lib/unschedule_once

return unschedule_once(key, arg, function(member, job_id)
  redis.call('DEL', arg.base .. job_id)
end)
