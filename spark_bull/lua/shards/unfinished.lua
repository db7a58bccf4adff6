-- Counts the unfinished jobs and writes of a shard at one moment. `states`: the command that counts a state, and its key.
-- @keys touched...
-- @returns the number of writes, then that of the jobs of each state

local call = redis.call
assert(#key.touched > 0)

local found = { call('ZCARD', key.open_writes) }
for _, state in ipairs(cmsgpack.unpack(arg.states)) do
  found[#found + 1] = call(state[1], state[2])
end
return found
