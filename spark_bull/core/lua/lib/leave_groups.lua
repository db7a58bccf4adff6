-- Removes jobs from the running ones of their groups, in the ZSET `group_active`: job id -> number of its group.
-- Returns job id -> group.
local function leave_groups(key, ids)
  local call, left = redis.call, {}
  if call('EXISTS', key.group_active) == 1 then
    for i, number in ipairs(#ids > 0 and call('ZMSCORE', key.group_active, unpack(ids)) or {}) do
      if number then
        left[ids[i]] = string.format('%016.0f', tonumber(number))
        call('ZREM', key.group_active, ids[i])
      end
    end
  end
  return left
end
