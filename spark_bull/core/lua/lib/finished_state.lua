-- The states `completed` and `failed`: the type of their keys, the command that removes a member, and whether they have a
-- job.
local finished_state = {
  kind = 'zset',
  take = 'ZREM',
  has = function(state, id)
    return redis.call('ZSCORE', state, id)
  end,
}
