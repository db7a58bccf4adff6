-- As in bull/lib: Bull 1 has SETs.
local finished_state = {
  kind = 'set',
  take = 'SREM',
  has = function(state, id)
    return redis.call('SISMEMBER', state, id) == 1
  end,
}
