-- Removes jobs from the running ones of their groups, in the ZSET `group_active`: job id -> number of its group.
-- Returns group -> number of its jobs.
local function leave_groups(key, ids)
  local call, left = redis.call, {}
  if call('EXISTS', key.group_active) == 1 then
    for _, id in ipairs(ids) do
      local number = call('ZSCORE', key.group_active, id)
      if number then
        local group = string.format('%016.0f', tonumber(number))
        left[group] = (left[group] or 0) + 1
        call('ZREM', key.group_active, id)
      end
    end
  end
  return left
end
