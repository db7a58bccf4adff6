-- Removes jobs that are no longer delayed from the groups in which Node's limiter keeps delayed jobs.
local function leave_limiter(key, ids)
  local call = redis.call
  if call('EXISTS', key.limiter_index) == 1 then
    for _, id in ipairs(ids) do
      local group = call('HGET', key.limiter_index, id)
      if group then
        call('SREM', group, id)
        call('HDEL', key.limiter_index, id)
      end
    end
  end
end
