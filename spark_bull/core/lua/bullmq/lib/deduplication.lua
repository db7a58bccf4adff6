-- Jobs that are added once for each deduplication id.
-- @include lib: add_jobs(fill_opts) jobs(job_row)
-- @include lib: values(free_id number_texts options_of take_numbers whole_number)
-- @include bullmq/lib: events(emit emit_trimmed major_version) flows(unlink_job) waiting(delay_job enqueue_job)

-- A removed job releases its deduplication id, if it owns it.
local function free_deduplication(base, job_id, deduplication_id)
  local holder = deduplication_id and base .. 'de:' .. deduplication_id
  if holder and redis.pcall('GET', holder) == job_id then
    call('UNLINK', holder, base .. 'dn:' .. deduplication_id)
  end
end

-- Returns a function that decides whether a job is added although its deduplication id may be taken. `job`: {id, name,
-- data, opts with marks, timestamp, delay, deduplication_id, rule}, all of them as given. It returns the id of the job
-- that is kept in its place, or nil when the job is to be added: then it has taken the id. If the rule has `maxDelay`, it
-- may lower `delay`, and sets `since`: when the first of the jobs that have replaced each other was added. Delayed jobs
-- of the same chunk must be in Redis.
local function deduplicator(key, arg)
  local base, text = arg.base, number_texts()
  local is_5 = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version) <= 5

  -- The list of active jobs can be long: it is searched only for a job that has started and has no lock now.
  local function is_active(job_id)
    if call('EXISTS', base .. job_id .. ':lock') == 1 then
      return true
    end
    local row = job_row(base .. job_id, 'processedOn')
    return row and row[1] and call('LPOS', key.active, job_id)
  end

  local function announce(job, kept, dropped)
    if is_5 then
      emit(key, arg, 'debounced', 'jobId', kept, 'debounceId', job.deduplication_id)
    end
    emit(key, arg, 'deduplicated', 'jobId', kept, 'deduplicationId', job.deduplication_id, 'deduplicatedJobId', dropped)
  end

  local function ttl_of(rule)
    return not rule.keepLastIfActive and rule.ttl
  end

  -- Limits the delay of a job that others may replace to what is left of `maxDelay` (ms), which begins with the first
  -- of these jobs. Returns what is left, ms; nil without `maxDelay`.
  local function limit_delay(job, kept)
    if not job.rule.maxDelay then
      return nil
    end
    local row = kept and job_row(base .. kept, 'debouncedSince', 'timestamp') or {}
    job.since = tonumber(row[1] or row[2]) or job.timestamp
    local left = math.max(0, job.since + job.rule.maxDelay - job.timestamp)
    job.delay = math.min(job.delay, left)
    return left
  end

  -- left: ms after which a new period begins, if that is before the TTL of the rule.
  local function hold(holder, job_id, rule, left)
    local ttl = ttl_of(rule)
    if ttl then
      call('SET', holder, job_id, 'PX', math.max(1, math.min(ttl, left or ttl)))
    else
      call('SET', holder, job_id)
    end
  end

  -- Takes the id if it is free. Returns the id of the job that has it, else nil.
  local function take(holder, job)
    local rule, is_free = job.rule, nil
    if rule.ttl and rule.extend then
      is_free = call('EXISTS', holder) == 0
      if is_free then
        hold(holder, job.id, rule)
      end
    elseif ttl_of(rule) then
      is_free = call('SET', holder, job.id, 'PX', rule.ttl, 'NX')
    else
      is_free = call('SET', holder, job.id, 'NX')
    end
    return not is_free and call('GET', holder) or nil
  end

  -- An id without a TTL whose job is gone is free; BullMQ 5 does not see that.
  local function take_stale(holder, aside, job, kept)
    if is_5 or call('EXISTS', base .. kept) == 1 or call('PTTL', holder) ~= -1 then
      return false
    end
    call('DEL', aside)
    hold(holder, job.id, job.rule)
    return true
  end

  -- Stores the job until the active one that has the id finishes: the last such job, or with `deferrableBy` (s) the
  -- first one, which is delayed then.
  local function store_aside(holder, aside, job, kept)
    local deferred = job.rule.deferrableBy
    if not (deferred or job.rule.keepLastIfActive) or not is_active(kept) then
      return false
    end
    if not (deferred and call('EXISTS', aside) == 1) then
      local delay = deferred and deferred * 1000 or job.delay
      call('DEL', aside)
      call('HSET', aside, 'name', job.name, 'data', job.data,
        'opts', fill_opts(job.opts, text[job.timestamp], text[delay], job.id, job.deduplication_id), 'jid', job.id)
    end
    call('PERSIST', holder)
    announce(job, kept, job.id)
    return true
  end

  -- Takes the place of a delayed job. Returns whether it was one.
  local function replace(holder, aside, job, kept)
    if call('ZREM', key.delayed, kept) == 0 then
      return false
    end
    local left = limit_delay(job, kept)
    unlink_job(base .. kept)
    emit(key, arg, 'removed', 'jobId', kept, 'prev', 'delayed')
    announce(job, job.id, kept)
    if not is_5 then
      call('DEL', aside)
    end
    if ttl_of(job.rule) and not job.rule.extend then
      call('SET', holder, job.id, 'KEEPTTL')
    else
      hold(holder, job.id, job.rule, left)
    end
    return true
  end

  local function add_or_replace(holder, aside, job)
    local kept = call('GET', holder)
    if not kept then
      hold(holder, job.id, job.rule, limit_delay(job))
      return nil
    end
    if replace(holder, aside, job, kept) then
      return nil
    end
    if take_stale(holder, aside, job, kept) then
      limit_delay(job)
      return nil
    end
    store_aside(holder, aside, job, kept)
    return kept
  end

  -- The delayed job gets the delay of the job that is dropped.
  local function reschedule(job, kept)
    if not is_5 and call('ZSCORE', key.delayed, kept) then
      limit_delay(job, kept)
      call('HSET', base .. kept, 'delay', text[job.delay])
      delay_job(key, kept, job.timestamp + job.delay)
    end
  end

  local function add_or_keep(holder, aside, job)
    local kept, rule = take(holder, job), job.rule
    if not kept or take_stale(holder, aside, job, kept) then
      limit_delay(job)
      return nil
    end
    if not store_aside(holder, aside, job, kept) then
      if rule.ttl and rule.extend then
        hold(holder, kept, rule)
      end
      announce(job, kept, job.id)
    end
    if rule.reschedule then
      reschedule(job, kept)
    end
    return kept
  end

  return function(job)
    local holder, aside = base .. 'de:' .. job.deduplication_id, base .. 'dn:' .. job.deduplication_id
    local add = job.rule.replace and add_or_replace or add_or_keep
    return add(holder, aside, job)
  end
end

-- A finished job releases its deduplication id, unless that has a TTL. A job that was added under it meanwhile and
-- stored aside (keepLastIfActive) is added to the queue now.
local function free_and_requeue(key, arg, job_id, deduplication_id, now)
  local base = arg.base
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
