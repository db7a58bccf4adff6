-- The greatest whole number that differs from its neighbours in Lua, and in Node.
local LARGEST = 9007199254740991

-- Takes the next `count` numbers for the ids of jobs; returns the last one. Fails before anything is written when they
-- are too large, or the counter is no whole number.
local function take_numbers(key, count)
  local counter = redis.call('GET', key.id) or '0'
  if not string.match(counter, '^-?%d+$') or tonumber(counter) + count > LARGEST then
    error('WRONGTYPE expected ' .. key.id .. ' to be a number below 2^53, found \'' .. counter .. '\'', 0)
  end
  return redis.call('INCRBY', key.id, count)
end
