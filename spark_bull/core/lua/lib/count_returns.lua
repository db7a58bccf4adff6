-- @include lib: count_up

-- Counts how often jobs were given back by their processors without a rate limit, in a field of
-- their hashes that others lack.
local function count_returns(base, returned, mine)
  for _, id in ipairs(returned) do
    if mine[id] then
      count_up(base .. id, 'returned')
    end
  end
end
