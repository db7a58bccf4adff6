-- Counts the unfinished jobs and registered writes of a shard at one moment. `states`: the command that counts a state,
-- and its key. Writes that are only prepared have negative scores.
-- @keys touched...
-- @returns the number of writes, then the number of jobs of each state

assert(#key.touched > 0)

local found = { call('ZCOUNT', key.open_writes, 0, '+inf') }
for _, state in ipairs(cmsgpack.unpack(arg.states)) do
  found[#found + 1] = call(state[1], state[2])
end
return found
