-- @include lib: free_id options_of take_numbers whole_number
-- @include bullmq/lib: delay_job emit emit_trimmed enqueue_job

-- A finished job releases its deduplication id, unless that has a TTL. A job that was added under it meanwhile and
-- stored aside (keepLastIfActive) is added to the queue now.
local function free_and_requeue(key, arg, job_id, deduplication_id, now)
  local call, base = redis.call, arg.base
  local holder = base .. 'de:' .. deduplication_id
  local ttl = call('PTTL', holder)
  if ttl == 0 or (ttl == -1 and call('GET', holder) == job_id) then
    call('DEL', holder)
  end
  local aside = base .. 'dn:' .. deduplication_id
  if call('EXISTS', aside) == 0 then
    return
  end
  local fields = call('HMGET', aside, 'name', 'data', 'opts', 'pk', 'pd', 'pdk', 'rjk', 'jid')
  if not (fields[1] and fields[2] and fields[3]) then
    call('DEL', aside)
    return
  end
  local number = take_numbers(key, 1)
  local next_id = fields[8] or free_id(key, base, number)
  local opts = options_of(fields[3])
  local rule = type(opts.de) == 'table' and opts.de or {}
  local delay, priority, ttl_ms = whole_number(opts.delay), whole_number(opts.priority), whole_number(rule.ttl)
  if not rule.keepLastIfActive and ttl_ms > 0 then
    call('SET', holder, next_id, 'PX', ttl_ms)
  else
    call('SET', holder, next_id)
  end
  local hash = {'name', fields[1], 'data', fields[2], 'opts', fields[3], 'timestamp', string.format('%.0f', now),
    'delay', delay, 'priority', priority}
  for name, value in pairs({parentKey = fields[4], parent = fields[4] and fields[5], rjk = fields[7], deid = rule.id}) do
    if value then
      hash[#hash + 1], hash[#hash + 2] = name, value
    end
  end
  call('HSET', base .. next_id, unpack(hash))
  emit(key, arg, 'added', 'jobId', next_id, 'name', fields[1])
  if delay > 0 then
    delay_job(key, next_id, now + delay)
  else
    enqueue_job(key, arg.bullmq_version, next_id, priority, opts.lifo and 'RPUSH' or 'LPUSH')
    emit_trimmed(key, arg, 'waiting', 'jobId', next_id)
  end
  if fields[6] then
    call('SADD', fields[6], base .. next_id)
  end
  call('DEL', aside)
end
