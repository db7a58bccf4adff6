-- Where jobs wait: `paused` while the queue is.
local function waiting_list(key)
  return redis.call('EXISTS', key.meta_paused) == 1 and key.paused or key.wait
end
