-- @include lib: group_record

-- Replaces what a group has of its own; see group_record.
local function save(key, group, own)
  local _, member = group_record(key, group)
  if member then
    redis.call('ZREM', key.group_own, member)
  end
  if own.max or own.concurrency or own.paused or own.rests_until then
    redis.call('ZADD', key.group_own, 0, group .. cmsgpack.pack(own))
  end
end

local group_own = {of = group_record, save = save}
