-- @include bull/bull1/lib: announce

-- Returns a function that fails a job without a worker, which has left its state.
local function unrun_failures(key, arg)
  return function(id, reason)
    redis.call('SADD', key.failed, id)
    redis.call('HSET', arg.base .. id, 'failedReason', reason)
    redis.call('HDEL', arg.base .. id, 'expireAt')
    announce(arg, 'failed', id, cjson.encode({message = reason}))
  end
end
