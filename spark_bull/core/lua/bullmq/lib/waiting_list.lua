-- @include lib: finite_number
-- @include bullmq/lib: major_version meta_of

-- Returns the list of waiting jobs, and whether the marker must not be set: the queue is paused, or the maximum number
-- of jobs is active. BullMQ 5 keeps jobs of a paused queue in `paused`, BullMQ 6 in `wait`.
local function waiting_list(key, forced_version)
  local meta = meta_of(key)
  if meta[1] then
    return major_version(meta[3], forced_version) <= 5 and key.paused or key.wait, true
  end
  local most_active = finite_number(meta[2])
  return key.wait, most_active and redis.call('LLEN', key.active) >= most_active
end
