-- @include lib: clock_of deduplications_of fill_opts free_id is_written job_terms listed number_texts push
-- @include lib: take_numbers
-- @include bullmq/lib: add_plain_jobs chunk_parents deduplicator delay_job delayed_score emit event_limit
-- @include bullmq/lib: priority_score sequencer waiting_list

-- Adds all jobs of a chunk from row `from` on.
-- Returns {next = first row not processed, added, duplicates, deduplicated, ids, is_range (see keep_ids), rejected}. A
-- job that is deduplicated has the id of the job that is kept. `rejected`: {row, reason} of jobs that were not added,
-- see chunk_parents; their id is ''.
local function add_jobs(key, arg, chunk, from, now)
  local plain = add_plain_jobs(key, arg, chunk, from, now)
  if plain then
    return plain
  end
  local call, base = redis.call, arg.base
  local n = chunk.n
  local counter = take_numbers(key, n - from + 1) - n
  local target, paused_or_full = waiting_list(key, arg.bullmq_version)
  local max_events = event_limit(key)
  local names, datas, all_opts = listed(chunk, 'name'), chunk.data, listed(chunk, 'opts')
  local own_ids = listed(chunk, 'own_id')
  local custom_ids, priorities = listed(chunk, 'job_id'), listed(chunk, 'priority')
  local lifos, times_of, marked = listed(chunk, 'lifo'), clock_of(chunk, now), chunk.marked
  local deduplication_of = deduplications_of(chunk)
  local kept_of = deduplication_of and deduplicator(key, arg)
  local parent_at, join_parent, join_existing, _, flush_children = chunk_parents(key, arg, chunk)
  local waits_for_children = listed(chunk, 'waits_for_children')
  local follows, keep_tails = sequencer(key, arg, chunk)
  local store_terms = job_terms(key, chunk, 'stc')
  local events, text = key.events, number_texts()
  -- Promoters wake by the events of jobs that expire.
  local has_steps = is_written(arg, 'waiting') or chunk.expire_after or chunk.expire_at
  local ids, rejected, missing, duplicates, deduplicated = {}, {}, 0, 0, 0
  local pushes, delayed, prioritized, highest = push.new(), {}, {}, {}

  -- Returns the id of the job that has the deduplication id of a row and is kept, if any, and the deduplication id.
  local function deduplicate(i, job_id, timestamp, delay)
    local deduplication_id, rule = deduplication_of(i)
    local kept = deduplication_id and kept_of({
      id = job_id,
      name = names[i],
      data = datas[i],
      opts = all_opts[i],
      timestamp = timestamp,
      delay = delay,
      deduplication_id = deduplication_id,
      rule = rule,
    })
    return kept, deduplication_id
  end

  -- A job that exists already joins its parent, unless an earlier attempt of the same task has added it as a child.
  local function count_duplicate(i, job_id, parent)
    local refused = parent and not own_ids[i] and join_existing(parent, job_id, times_of(i))
    if refused then
      rejected[#rejected + 1] = {i, refused}
      return ''
    end
    duplicates = duplicates + 1
    emit(key, arg, 'duplicated', 'jobId', job_id)
    return job_id
  end

  for i = from, n do
    local custom_id = custom_ids[i]
    local job_id = custom_id or free_id(key, base, counter + i)
    local job_key, kept, deduplication_id = base .. job_id, nil, nil
    local parent = parent_at and parent_at(i)
    local is_orphan = parent and not chunk.parents_exist and call('EXISTS', parent.key) == 0
    if is_orphan and not chunk.parent_optional then
      -- It takes no number.
      counter, missing, kept = counter - 1, missing + 1, ''
      rejected[#rejected + 1] = {i, 'missing'}
    elseif custom_id and not chunk.new_ids and call('EXISTS', job_key) == 1 then
      kept = count_duplicate(i, job_id, not is_orphan and parent)
    else
      local timestamp, delay = times_of(i)
      if deduplication_of then
        kept, deduplication_id = deduplicate(i, job_id, timestamp, delay)
      end
      if kept then
        deduplicated = deduplicated + 1
      else
        local name = names[i]
        local priority = priorities[i] or 0
        local opts = all_opts[i]
        if marked then
          opts = fill_opts(opts, text[timestamp], text[delay], job_id, deduplication_id, parent and parent.option)
        end
        if deduplication_id then
          call('HSET', job_key, 'name', name, 'data', datas[i], 'opts', opts, 'timestamp', text[timestamp],
            'delay', text[delay], 'priority', text[priority], 'deid', deduplication_id)
        elseif parent and not is_orphan then
          call('HSET', job_key, 'name', name, 'data', datas[i], 'opts', opts, 'timestamp', text[timestamp],
            'delay', text[delay], 'priority', text[priority], 'parentKey', parent.key, 'parent', parent.field)
        else
          call('HSET', job_key, 'name', name, 'data', datas[i], 'opts', opts,
            'timestamp', text[timestamp], 'delay', text[delay], 'priority', text[priority])
        end
        if store_terms then
          store_terms(i, job_id, job_key, timestamp)
        end
        if has_steps then
          call('XADD', events, '*', 'event', 'added', 'jobId', job_id, 'name', name)
        end
        if waits_for_children[i] or (follows and follows(i, job_id)) then
          call('ZADD', key.waiting_children, text[timestamp], job_id)
          emit(key, arg, 'waiting-children', 'jobId', job_id)
        elseif delay > 0 and deduplication_of then
          -- The next jobs of the chunk may replace it.
          delay_job(key, job_id, timestamp + delay)
        elseif delay > 0 then
          local eta = timestamp + delay
          delayed[#delayed + 1] = delayed_score(key, highest, eta)
          delayed[#delayed + 1] = job_id
          call('XADD', events, '*', 'event', 'delayed', 'jobId', job_id, 'delay', text[eta])
        else
          if priority > 0 then
            prioritized[#prioritized + 1] = {job_id, priority}
          else
            push.gather(pushes, job_id, lifos[i])
          end
          if has_steps then
            call('XADD', events, '*', 'event', 'waiting', 'jobId', job_id)
          end
        end
        if parent and not is_orphan then
          join_parent(parent, job_key)
        end
      end
    end
    ids[i - from + 1] = kept or job_id
    -- Less for the garbage collector to visit.
    datas[i] = false
  end
  if flush_children then
    flush_children()
  end
  local ready = #pushes.newest + #pushes.next + #prioritized > 0
  push.flush(pushes, target)
  if #prioritized > 0 then
    local order = call('INCRBY', key.pc, #prioritized) - #prioritized
    local scored = {}
    for i, job in ipairs(prioritized) do
      scored[#scored + 1] = priority_score(job[2], order + i)
      scored[#scored + 1] = job[1]
    end
    call('ZADD', key.prioritized, unpack(scored))
  end
  if #delayed > 0 then
    call('ZADD', key.delayed, unpack(delayed))
    local first = call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')
    call('ZADD', key.marker, tonumber(first[2]) / 4096, '1')
  end
  if ready and not paused_or_full then
    call('ZADD', key.marker, 0, '0')
  end
  if missing > 0 then
    call('DECRBY', key.id, missing)
  end
  if keep_tails then
    keep_tails()
  end
  call('XTRIM', key.events, 'MAXLEN', '~', max_events)
  return {
    next = n + 1,
    added = n - from + 1 - duplicates - deduplicated - #rejected,
    duplicates = duplicates,
    deduplicated = deduplicated,
    ids = ids,
    is_range = not chunk.job_id and duplicates + deduplicated + #rejected == 0
      and tonumber(call('GET', key.id)) == counter + n,
    rejected = rejected,
  }
end
