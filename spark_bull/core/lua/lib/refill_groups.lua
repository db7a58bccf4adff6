-- @include lib: group_places group_room

-- Promotes delayed jobs of groups that have places again. `left`: {job id -> group} of the jobs that have left their
-- groups; the ones that wait again (the list `waiting`) keep their places. The limits are given by the call, else by
-- the call that delayed jobs last.
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
    group_room.promote(key, arg, rooms)
  end
end
