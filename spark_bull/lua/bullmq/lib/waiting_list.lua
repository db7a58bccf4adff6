-- @include bullmq/lib/major_version

-- The list that waiting jobs join, and whether workers may not be woken: the queue is paused, or
-- as many jobs are active as it allows. BullMQ 5 keeps jobs of a paused queue in `paused`, 6 in
-- `wait`.
local function waiting_list(key, forced_version)
  local meta = redis.call('HMGET', key.meta, 'paused', 'concurrency', 'version')
  if meta[1] then
    return major_version(meta[3], forced_version) <= 5 and key.paused or key.wait, true
  end
  local most_active = tonumber(meta[2])
  return key.wait, most_active and redis.call('LLEN', key.active) >= most_active
end
