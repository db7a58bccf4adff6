-- Keeps the ids of the jobs of a write in a list: an entry is an array of ids, or {first, last} of numbers that follow
-- each other. `result`: what add_jobs returned. Without `keeps_all` only such numbers are kept: one entry while the
-- numbers of a write follow each other.
local function keep_ids(list, result, keeps_all, ttl_ms)
  local call, ids, entry = redis.call, result.ids, nil
  if result.is_range then
    local newest = call('LINDEX', list, -1)
    local before = newest and cmsgpack.unpack(newest)
    entry = {first = tonumber(ids[1]), last = tonumber(ids[#ids])}
    if before and before.last and before.last + 1 == entry.first then
      call('LSET', list, -1, cmsgpack.pack({first = before.first, last = entry.last}))
      return
    end
  elseif keeps_all then
    entry = ids
  end
  if entry then
    call('RPUSH', list, cmsgpack.pack(entry))
    call('PEXPIRE', list, ttl_ms)
  end
end
