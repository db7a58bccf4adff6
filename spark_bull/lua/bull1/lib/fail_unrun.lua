-- @include bull1/lib/announce

-- Fails a job without a worker, which has left its state.
local function fail_unrun(key, arg, id, reason)
  redis.call('SADD', key.failed, id)
  redis.call('HSET', arg.base .. id, 'failedReason', reason)
  redis.call('HDEL', arg.base .. id, 'expireAt')
  announce(arg, 'failed', id, cjson.encode({message = reason}))
end
