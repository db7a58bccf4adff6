-- Sets limits of the queue, which are fields of `meta`, or removes them. If jobs may start now, it sets the marker, so
-- that idle workers need not wait until they look again.
-- @returns 1
-- @include bullmq/lib: waiting(waiting_list)

local set, removed = cmsgpack.unpack(arg.set), cmsgpack.unpack(arg.removed)
if #set > 0 then
  call('HSET', key.meta, unpack(set))
end
if #removed > 0 then
  call('HDEL', key.meta, unpack(removed))
end
local _, paused_or_full = waiting_list(key, arg.bullmq_version)
if not paused_or_full and call('EXISTS', key.wait, key.prioritized) > 0 then
  call('ZADD', key.marker, 0, '0')
end
return 1
