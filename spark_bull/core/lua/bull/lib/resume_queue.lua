local function resume_queue(key)
  redis.call('DEL', key.meta_paused)
  redis.call('HDEL', key.meta, 'paused')
  redis.call('PUBLISH', key.resumed, 'resumed')
end
