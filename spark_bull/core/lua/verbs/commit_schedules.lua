-- Creates or changes the next staged job schedulers of a registered write.
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include lib: writes(commit_once)
-- @include {dialect}/lib: schedules(upsert_schedules)

return commit_once(key, arg, upsert_schedules)
