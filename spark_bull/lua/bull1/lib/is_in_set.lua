-- Whether a job is in a state that is a SET.
local function is_in_set(state, id)
  return redis.call('SISMEMBER', state, id) == 1
end
