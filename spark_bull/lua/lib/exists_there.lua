-- @include lib/id_there

local function exists_there(change)
  local id = id_there(change)
  return id and redis.call('EXISTS', change.to_base .. id) == 1
end
