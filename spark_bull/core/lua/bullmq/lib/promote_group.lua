-- @include lib: clear_delay
-- @include bullmq/lib: emit enqueue_near

-- Makes delayed jobs of groups wait behind the next jobs; see enqueue_near.
local function promote_group(key, arg, ids)
  redis.call('ZREM', key.delayed, unpack(ids))
  enqueue_near(key, arg, ids)
  for _, id in ipairs(ids) do
    emit(key, arg, 'waiting', 'jobId', id, 'prev', 'delayed')
    clear_delay(arg.base .. id)
  end
end
