-- @include lib: jobs_before(JOBS_BEFORE)

-- Adds jobs to a list of waiting ones, in this order, behind the next ones.
local function insert_near(list, ids)
  local call, before = redis.call, redis.call('LRANGE', list, -JOBS_BEFORE, -1)
  if #before < JOBS_BEFORE then
    call('LPUSH', list, unpack(ids))
    return
  end
  local pushed = {}
  for i = #ids, 1, -1 do
    pushed[#pushed + 1] = ids[i]
  end
  call('LTRIM', list, 0, -JOBS_BEFORE - 1)
  call('RPUSH', list, unpack(pushed))
  call('RPUSH', list, unpack(before))
end
