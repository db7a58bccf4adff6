-- @include lib: clear_delay jobs_before(JOBS_BEFORE) priority_of
-- @include bull/lib: priority_inserts waiting_list
-- @include {dialect}/lib: announce_waiting

-- Makes delayed jobs of groups wait behind the next ones of their priority, in this order, and publishes them.
local function promote_group(key, arg, ids)
  local jobs = {}
  for i, id in ipairs(ids) do
    local priority = priority_of(arg.base .. id)
    jobs[i] = {id = id, priority = priority > 0 and priority or math.huge}
    clear_delay(arg.base .. id)
  end
  redis.call('ZREM', key.delayed, unpack(ids))
  priority_inserts.near(key, waiting_list(key), jobs, JOBS_BEFORE)
  for _, id in ipairs(ids) do
    announce_waiting(key, arg, id)
  end
end
