-- Leaves jobs that have returned to the queue out of the claims of a ledger; the others keep their positions.
-- `returned`: packed map of the ids of such jobs, by the token of their claim.
-- @returns nothing
-- @include lib: numbers(set_of)

local call, returned = redis.call, cmsgpack.unpack(arg.returned)
local claims = call('ZRANGE', key.ledger, 0, -1, 'WITHSCORES')
for i = 1, #claims, 2 do
  local token, ids = unpack(cmsgpack.unpack(claims[i]))
  if returned[token] then
    local gone = set_of(returned[token])
    for place, id in ipairs(ids) do
      ids[place] = gone[id] and '' or id
    end
    call('ZREM', key.ledger, claims[i])
    call('ZADD', key.ledger, claims[i + 1], cmsgpack.pack({token, ids}))
  end
end
