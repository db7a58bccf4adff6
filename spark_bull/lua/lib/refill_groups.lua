-- @include lib: group_places group_room

-- Promotes delayed jobs of the groups whose running jobs have ended, {job id -> group}, where there are places. Jobs
-- that wait again (the list `waiting`) keep their places. The limits are those of the call, or else those with which
-- jobs were delayed.
local function refill_groups(key, arg, now, left, waiting)
  if not next(left) or redis.call('EXISTS', key.group_delayed) == 0 then
    return
  end
  local packed = arg.group ~= '' and arg.group or redis.call('GET', key.group_settings)
  group_places.keep(key, left, waiting)
  if packed then
    local settings, rooms = cmsgpack.unpack(packed), {}
    for _, group in pairs(left) do
      rooms[group] = rooms[group] or group_room.room_of(key, arg.base, settings, group, now)
    end
    group_room.promote(key, arg, settings, rooms)
  end
end
