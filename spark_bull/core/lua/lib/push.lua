-- Ids collected for the two ends of a list and pushed with one command each, as pushes to one end do not change the
-- order at the other.
local function new_pushes()
  return {newest = {}, next = {}}
end

local function gather_push(pushes, job_id, lifo)
  local ids = lifo and pushes.next or pushes.newest
  ids[#ids + 1] = job_id
end

local function flush_pushes(pushes, list)
  if #pushes.newest > 0 then
    redis.call('LPUSH', list, unpack(pushes.newest))
    pushes.newest = {}
  end
  if #pushes.next > 0 then
    redis.call('RPUSH', list, unpack(pushes.next))
    pushes.next = {}
  end
end

local push = {new = new_pushes, gather = gather_push, flush = flush_pushes}
