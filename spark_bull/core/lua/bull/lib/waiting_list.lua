-- The list of waiting jobs: `paused` while the queue is paused.
local function waiting_list(key)
  return redis.call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
end
