-- Jobs are added.
-- @include lib: add_jobs(clock_of deduplications_of fill_opts job_terms listed) events(is_written)
-- @include lib: values(free_id number_texts take_numbers) waiting(push)
-- @include bullmq/lib: add_jobs(chunk_parents) deduplication(deduplicator) dependents(sequencer)
-- @include bullmq/lib: events(emit event_limit major_version) flows(parent_of release_parent)
-- @include bullmq/lib: waiting(delay_job delayed_score priority_score waiting_list)

-- Maximum number of ancestors in which a cycle is looked for.
local MOST_ANCESTORS = 100

-- Returns five functions for the jobs of a chunk, or nil when none of them has a parent:
--   parent_at(i): the parent of a row, {id, queue (with the prefix), key, option = JSON text for the job's options,
--     field = JSON text for the job's hash}; nil if it has none.
--   join(parent, job_key): makes a new job a child, whose hash has the parent. The caller calls `flush` at the end.
--   join_existing(parent, job_id, timestamp): makes a job that exists a child, as BullMQ does, unless it is refused.
--   refusal(parent, job_key, new_parents): why a job can't be a child: 'other parent' (it has another one, which exists)
--     or 'cycle' (it is an ancestor of the parent); nil if it can. `new_parents`: keys of parents that are not stored yet,
--     by the keys of their children.
--   flush()
-- With `chunk.deferred` no parent is released: the caller does it, after all children were added.
local function chunk_parents(key, arg, chunk)
  if not chunk.parent_id then
    return nil
  end
  local ids, queues, flags = listed(chunk, 'parent_id'), listed(chunk, 'parent_queue'), listed(chunk, 'on_failure')
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  local is_5 = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version) <= 5

  -- Many rows have the parent of the row before.
  local last, last_row

  local function parent_at(i)
    local id, queue = ids[i], queues[i]
    if not id then
      return nil
    end
    if last and ids[last_row] == id and queues[last_row] == queue and flags[last_row] == flags[i] then
      return last
    end
    if not string.find(queue, ':', 1, true) then
      queue = prefix .. queue
    end
    local id_text, queue_text = cjson.encode(id), cjson.encode(queue)
    local flag = flags[i] and ',"' .. flags[i] .. '":true' or ''
    last_row = i
    last = {
      id = id,
      queue = queue,
      key = queue .. ':' .. id,
      option = '{"id":' .. id_text .. ',"queue":' .. queue_text .. '}',
      field = '{"id":' .. id_text .. ',"queueKey":' .. queue_text .. flag .. '}',
    }
    return last
  end

  -- New children of one parent, which are added to its set together.
  local newest, parent_of_newest = {}, nil

  local function flush()
    if parent_of_newest then
      call('SADD', parent_of_newest.key .. ':dependencies', unpack(newest))
      newest, parent_of_newest = {}, nil
    end
  end

  local function join(parent, job_key)
    if parent_of_newest ~= parent then
      flush()
      parent_of_newest = parent
    end
    newest[#newest + 1] = job_key
  end

  local function is_ancestor(job_key, parent_key, new_parents)
    local ancestor = parent_key
    for _ = 1, MOST_ANCESTORS do
      if not ancestor or ancestor == job_key then
        return ancestor == job_key
      end
      ancestor = new_parents and new_parents[ancestor] or call('HGET', ancestor, 'parentKey')
    end
    return false
  end

  local function refusal(parent, job_key, new_parents)
    local other = call('HGET', job_key, 'parentKey')
    if other and other ~= parent.key and call('EXISTS', other) == 1 then
      return 'other parent'
    end
    return is_ancestor(job_key, parent.key, new_parents) and 'cycle' or nil
  end

  -- The result of a job that has completed is known at once.
  local function join_completed(parent, job_key, timestamp)
    call('HSET', parent.key .. ':processed', job_key, call('HGET', job_key, 'returnvalue') or 'null')
    if not chunk.deferred and call('SCARD', parent.key .. ':dependencies') == 0 then
      local keys, parent_id = parent_of(key, arg, parent.key)
      release_parent(keys, arg, parent.key, parent_id, keys.waiting_children, timestamp)
    end
  end

  local function join_existing(parent, job_id, timestamp)
    flush()
    local job_key = arg.base .. job_id
    local refused, other = refusal(parent, job_key), call('HGET', job_key, 'parentKey')
    if refused or (is_5 and other and other ~= parent.key) then
      -- BullMQ 5 leaves a job whose parent is gone without one.
      return refused
    end
    if call('ZSCORE', key.completed, job_id) then
      join_completed(parent, job_key, timestamp)
    else
      call('SADD', parent.key .. ':dependencies', job_key)
    end
    call('HSET', job_key, 'parentKey', parent.key, 'parent', parent.field)
  end

  return parent_at, join, join_existing, refusal, flush
end

-- Adds jobs of a chunk.

-- The columns of chunks whose jobs are new, have numbers as ids, and wait. Attempts are part of the options, too.
local PLAIN = {n = true, data = true, name = true, opts = true, marked = true, attempts = true}

local DIGITS = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

local function is_plain(chunk)
  for column in pairs(chunk) do
    if not PLAIN[column] then
      return false
    end
  end
  return not chunk.marked
end

-- The value of all jobs, or the list of a column.
local function one_or_list(column)
  if type(column) == 'table' then
    return nil, column
  end
  return column, nil
end

-- The ids of the jobs with `count` numbers from `first` on, and their keys. The digits before the last one are formatted
-- for ten jobs: to join texts takes a fifth of the time.
local function numbered(base, first, count)
  local format, ids, keys, head, key_head = string.format, {}, {}, nil, nil
  for i = 1, count do
    local number = first + i - 1
    local digit = number % 10
    local last = DIGITS[digit]
    if number < 0 then
      -- Somebody has set the counter.
      head, key_head, last = '', base, format('%d', number)
    elseif digit == 0 or not head then
      local tens = (number - digit) / 10
      head = tens > 0 and format('%d', tens) or ''
      key_head = base .. head
    end
    ids[i], keys[i] = head .. last, key_head .. last
  end
  return ids, keys
end

-- As add_jobs, for jobs that have nothing but payloads, names and options, as most do: to ask for each of them what else
-- it may have takes a tenth of the time of its commands. Returns nil, and adds nothing, if a job may have more, or
-- somebody has the key of its number.
local function add_plain_jobs(key, arg, chunk, from, now)
  if not is_plain(chunk) then
    return nil
  end
  local events, n = key.events, chunk.n
  local count, datas, timestamp = n - from + 1, chunk.data, number_texts()[now]
  local one_name, names = one_or_list(chunk.name)
  local one_opts, all_opts = one_or_list(chunk.opts)
  local ids, keys = numbered(arg.base, take_numbers(key, count) - count + 1, count)
  if call('EXISTS', unpack(keys)) > 0 then
    call('DECRBY', key.id, count)
    return nil
  end
  local target, paused_or_full = waiting_list(key, arg.bullmq_version)
  local max_events, has_steps = event_limit(key), is_written(arg, 'waiting')
  for place, job_id in ipairs(ids) do
    local i = from + place - 1
    local name = one_name or names[i]
    call('HSET', keys[place], 'name', name, 'data', datas[i], 'opts', one_opts or all_opts[i],
      'timestamp', timestamp, 'delay', '0', 'priority', '0')
    if has_steps then
      call('XADD', events, '*', 'event', 'added', 'jobId', job_id, 'name', name)
      call('XADD', events, '*', 'event', 'waiting', 'jobId', job_id)
    end
  end
  call('LPUSH', target, unpack(ids))
  if not paused_or_full then
    call('ZADD', key.marker, 0, '0')
  end
  call('XTRIM', events, 'MAXLEN', '~', max_events)
  return {next = n + 1, added = #ids, duplicates = 0, deduplicated = 0, ids = ids, is_range = true, rejected = {}}
end

-- Puts new jobs into their places: `pushes`, see push; `prioritized`: {id, priority} of each; `delayed`: scores and ids.
local function put_into_places(key, version, pushes, prioritized, delayed)
  local target, paused_or_full = waiting_list(key, version)
  local ready = #pushes.newest + #pushes.next + #prioritized > 0
  push.flush(pushes, target)
  if #prioritized > 0 then
    local order, scored = call('INCRBY', key.pc, #prioritized) - #prioritized, {}
    for i, job in ipairs(prioritized) do
      scored[2 * i - 1], scored[2 * i] = priority_score(job[2], order + i), job[1]
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
end

local NOTHING = {}

-- Adds all jobs of a chunk from row `from` on.
-- Returns {next = first row not processed, added, duplicates, deduplicated, ids, is_range (see keep_ids), rejected}. A
-- job that is deduplicated has the id of the job that is kept. `rejected`: {row, reason} of jobs that were not added,
-- see chunk_parents; their id is ''.
local function add_jobs(key, arg, chunk, from, now)
  local plain = add_plain_jobs(key, arg, chunk, from, now)
  if plain then
    return plain
  end
  local base, n = arg.base, chunk.n
  local counter = take_numbers(key, n - from + 1) - n
  local names, datas, all_opts = listed(chunk, 'name'), chunk.data, listed(chunk, 'opts')
  local own_ids, custom_ids = listed(chunk, 'own_id'), listed(chunk, 'job_id')
  local priorities, lifos = listed(chunk, 'priority'), listed(chunk, 'lifo')
  local waits_for_children, times_of = listed(chunk, 'waits_for_children'), clock_of(chunk, now)
  local deduplication_of = deduplications_of(chunk)
  local kept_of = deduplication_of and deduplicator(key, arg)
  local parent_at, join_parent, join_existing, _, flush_children = chunk_parents(key, arg, chunk)
  local follows, keep_tails = sequencer(key, arg, chunk)
  local store_terms = job_terms(key, chunk, 'stc')
  -- Promoters wake by the events of jobs that expire.
  local has_steps = is_written(arg, 'waiting') or chunk.expire_after or chunk.expire_at
  local events, marked, text = key.events, chunk.marked, number_texts()
  local pushes, prioritized, delayed, highest = push.new(), {}, {}, {}
  local ids, rejected, missing, duplicates, deduplicated = {}, {}, 0, 0, 0

  local function reject(i, reason)
    rejected[#rejected + 1] = {i, reason}
    return ''
  end

  -- The reply for a job whose parent is missing: it takes no number. Nil if it is added without the parent.
  local function miss_parent(i)
    if not chunk.parent_optional then
      counter, missing = counter - 1, missing + 1
      return reject(i, 'missing')
    end
  end

  -- A job that exists already joins its parent, unless an earlier attempt of the same task has added it as a child.
  local function count_duplicate(i, job_id, parent)
    local refused = parent and not own_ids[i] and join_existing(parent, job_id, times_of(i))
    if refused then
      return reject(i, refused)
    end
    duplicates = duplicates + 1
    emit(key, arg, 'duplicated', 'jobId', job_id)
    return job_id
  end

  -- Returns the id of the job that has the deduplication id of a row and is kept, if any, the deduplication id, and the
  -- delay and `since` of the job; see deduplicator.
  local function deduplicate(i, job_id, timestamp, delay)
    local deduplication_id, rule = deduplication_of(i)
    local job = {
      id = job_id,
      name = names[i],
      data = datas[i],
      opts = all_opts[i],
      timestamp = timestamp,
      delay = delay,
      deduplication_id = deduplication_id,
      rule = rule,
    }
    local kept = deduplication_id and kept_of(job)
    deduplicated = deduplicated + (kept and 1 or 0)
    return kept, deduplication_id, job.delay, job.since
  end

  -- Functions of a row would add 2 to 4 % to the time of the script.
  for i = from, n do
    local custom_id, timestamp, delay = custom_ids[i], times_of(i)
    local job_id = custom_id or free_id(key, base, counter + i)
    local job_key, parent, kept, deduplication_id, since = base .. job_id, parent_at and parent_at(i), nil, nil, nil
    local option = parent and parent.option
    if parent and not chunk.parents_exist and call('EXISTS', parent.key) == 0 then
      kept, parent = miss_parent(i), nil
    end
    if not kept and custom_id and not chunk.new_ids and call('EXISTS', job_key) == 1 then
      kept = count_duplicate(i, job_id, parent)
    end
    if not kept and deduplication_of then
      kept, deduplication_id, delay, since = deduplicate(i, job_id, timestamp, delay)
    end
    if not kept then
      local opts, priority, more = all_opts[i], priorities[i] or 0, NOTHING
      if marked then
        opts = fill_opts(opts, text[timestamp], text[delay], job_id, deduplication_id, option)
      end
      if deduplication_id then
        more = {'deid', deduplication_id, since and 'debouncedSince', since and text[since]}
      elseif parent then
        more = {'parentKey', parent.key, 'parent', parent.field}
      end
      call('HSET', job_key, 'name', names[i], 'data', datas[i], 'opts', opts, 'timestamp', text[timestamp],
        'delay', text[delay], 'priority', text[priority], unpack(more))
      if store_terms then
        store_terms(i, job_id, job_key, timestamp)
      end
      if has_steps then
        call('XADD', events, '*', 'event', 'added', 'jobId', job_id, 'name', names[i])
      end
      if waits_for_children[i] or (follows and follows(i, job_id, text[timestamp])) then
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
      if parent then
        join_parent(parent, job_key)
      end
    end
    ids[i - from + 1] = kept or job_id
    -- Less for the garbage collector to visit.
    datas[i] = false
  end
  if flush_children then
    flush_children()
  end
  put_into_places(key, arg.bullmq_version, pushes, prioritized, delayed)
  if missing > 0 then
    call('DECRBY', key.id, missing)
  end
  if keep_tails then
    keep_tails()
  end
  call('XTRIM', key.events, 'MAXLEN', '~', event_limit(key))
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

-- Adds the jobs of a chunk, whose ids differ, as children of parents that exist; returns their number.
local function add_children(key, arg, chunk, now)
  local keys = {}
  for row, job_id in ipairs(listed(chunk, 'job_id')) do
    keys[row] = arg.base .. job_id
  end
  chunk.parents_exist = true
  chunk.new_ids = call('EXISTS', unpack(keys)) == 0
  return add_jobs(key, arg, chunk, 1, now).added
end
