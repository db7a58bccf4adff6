-- The list that waiting jobs join, and whether workers may not be woken: the queue is paused, or
-- as many jobs are active as it allows. BullMQ 5 keeps jobs of a paused queue in `paused`, 6 in
-- `wait`; without a sign of 5, 6 is taken.
local function target_bullmq(key, forced_version)
  local meta = redis.call('HMGET', key.meta, 'paused', 'concurrency', 'version')
  if meta[1] then
    local major = forced_version
    if major == 'auto' then
      major = string.match(meta[3] or '', '^bullmq:(%d+)%.') or '6'
    end
    return tonumber(major) <= 5 and key.paused or key.wait, true
  end
  local maxed = meta[2] and redis.call('LLEN', key.active) >= tonumber(meta[2])
  return key.wait, maxed
end
