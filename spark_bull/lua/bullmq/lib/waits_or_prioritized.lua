-- @include lib/waits

-- Whether a job is one of the next ones of the queue, or prioritized.
local function waits_or_prioritized(key, id)
  return redis.call('ZSCORE', key.prioritized, id) or waits(key, id)
end
