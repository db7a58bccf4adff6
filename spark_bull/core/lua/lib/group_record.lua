-- What a group has of its own: {name, max, duration_ms, concurrency, paused, rests_until}, all optional; {} for nothing.
-- Also returns its member of the ZSET `group_own`: its digits and this record, packed. All members have one score, so
-- that they are read in the order of the digits.
local function group_record(key, group)
  local member = redis.call('ZRANGEBYLEX', key.group_own, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
  return member and cmsgpack.unpack(string.sub(member, #group + 1)) or {}, member
end
