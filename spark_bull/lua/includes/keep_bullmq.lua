-- @include family_bullmq

-- Removes finished jobs from `state` until it holds what `keep` allows: {count, age (s), limit}.
local function keep_bullmq(key, arg, state, keep, now)
  local call = redis.call
  local function remove(ids)
    for _, job_id in ipairs(ids) do
      local job_key = arg.base .. job_id
      local parent_key = call('HGET', job_key, 'parentKey')
      if parent_key then
        leave_parent(key, arg, job_key, parent_key, false)
      end
      unlink_job(job_key)
    end
    if #ids > 0 then
      call('ZREM', state, unpack(ids))
    end
  end
  if keep.age then
    remove(call('ZREVRANGEBYSCORE', state, now - keep.age * 1000, '-inf', 'LIMIT', 0, keep.limit or 1000))
  end
  if keep.count and keep.count > 0 then
    local over = call('ZCARD', state) - keep.count
    if over > 0 then
      remove(call('ZRANGE', state, 0, math.min(over, 1000) - 1))
    end
  end
end
