-- Changes what groups have of their own, and promotes the delayed jobs of these groups that may start now, once per call
-- of a sender. `changes`: a list of {group = name, set = {name -> value}, removed = {name...}}; see group_record.
-- Before the first claim by groups no job of them is delayed: there is nothing to promote.
-- @returns nothing
-- @include lib: group_limits(group_room) groups(group_checks group_digits group_own) once values(time_ms)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local packed = call('GET', key.group_settings)
  local settings, now, rooms = packed and cmsgpack.unpack(packed), time_ms(), {}
  for _, change in ipairs(cmsgpack.unpack(arg.changes)) do
    local group = group_digits(change.group)
    local own = group_own.of(key, group)
    own.name = change.group
    for name, value in pairs(change.set) do
      own[name] = value
    end
    for _, name in ipairs(change.removed) do
      own[name] = nil
    end
    group_own.save(key, group, own)
    if settings then
      rooms[group] = group_room.room_of(key, arg.base, settings, group, now)
    end
  end
  group_room.promote(key, arg, rooms)
  for group in pairs(rooms) do
    group_checks.plan_next(key, group, now)
  end
end)
