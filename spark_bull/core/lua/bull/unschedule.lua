-- Removes job schedulers, and their next jobs if these are delayed. `members`: of the ZSET of schedulers, and the start
-- of the ids of their jobs, in turn.
-- @args members...
-- @returns how many schedulers were removed
-- @include lib: schedules(unschedule_once)

return unschedule_once(key, arg, function(job_id)
  call('DEL', arg.base .. job_id)
end)
