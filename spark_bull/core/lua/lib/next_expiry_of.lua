-- When jobs have to be looked at as the next one expires, ms since 1970, or nil.
local function next_expiry_of(expiry)
  local first = redis.call('ZRANGE', expiry, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end
