-- @include lib: holder_of

local function holds_deduplication(change)
  local holder = holder_of(change)
  return holder and redis.call('GET', holder) == change.id
end
