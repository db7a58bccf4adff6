-- @include lib: fill_opts number_texts set_of
-- @include bullmq/lib: delay_job emit major_version unlink_job

-- Returns a function that decides whether a job is added although its deduplication id may be taken. `job`: {id, name,
-- data, opts with marks, timestamp, delay, deduplication_id, rule}, all of them as given. It returns the id of the job
-- that is kept in its place, or nil when the job is to be added: then it has taken the id. Delayed jobs of the same
-- chunk must be in Redis.
local function deduplicator(key, arg)
  local call, base, text = redis.call, arg.base, number_texts()
  local is_5 = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version) <= 5
  local active

  -- The list is long, so that it is read once.
  local function is_active(job_id)
    active = active or set_of(call('LRANGE', key.active, 0, -1))
    return active[job_id]
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

  local function hold(holder, job_id, rule)
    local ttl = ttl_of(rule)
    if ttl then
      call('SET', holder, job_id, 'PX', ttl)
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
    unlink_job(base .. kept)
    emit(key, arg, 'removed', 'jobId', kept, 'prev', 'delayed')
    announce(job, job.id, kept)
    if not is_5 then
      call('DEL', aside)
    end
    if ttl_of(job.rule) and not job.rule.extend then
      call('SET', holder, job.id, 'KEEPTTL')
    else
      hold(holder, job.id, job.rule)
    end
    return true
  end

  local function add_or_replace(holder, aside, job)
    local kept = call('GET', holder)
    if not kept then
      hold(holder, job.id, job.rule)
      return nil
    end
    if replace(holder, aside, job, kept) or take_stale(holder, aside, job, kept) then
      return nil
    end
    store_aside(holder, aside, job, kept)
    return kept
  end

  -- The delayed job gets the delay of the job that is dropped.
  local function reschedule(job, kept)
    if not is_5 and call('ZSCORE', key.delayed, kept) then
      call('HSET', base .. kept, 'delay', text[job.delay])
      delay_job(key, kept, job.timestamp + job.delay)
    end
  end

  local function add_or_keep(holder, aside, job)
    local kept, rule = take(holder, job), job.rule
    if not kept or take_stale(holder, aside, job, kept) then
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
