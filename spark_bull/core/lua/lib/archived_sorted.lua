-- @include lib: archived

-- As `archived`, for states that are ZSETs, from which the jobs are removed.
local function archived_sorted(key, arg)
  local call = redis.call
  local found, base = archived(key, arg, function(state, ids, times)
    local unchanged = {}
    for i, time in ipairs(call('ZMSCORE', key[state], unpack(ids))) do
      unchanged[i] = time == times[i]
    end
    return unchanged
  end)
  for state, ids in pairs(found) do
    if #ids > 0 then
      call('ZREM', key[state], unpack(ids))
    end
  end
  return found, base
end
