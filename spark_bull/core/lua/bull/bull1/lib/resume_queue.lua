local function resume_queue(key)
  redis.call('DEL', key.meta_paused)
  redis.call('PUBLISH', key.paused, 'resumed')
end
