-- Whether a job is in a state that is a ZSET.
local function is_in_sorted(state, id)
  return redis.call('ZSCORE', state, id)
end
