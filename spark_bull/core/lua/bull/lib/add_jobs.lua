-- Jobs are added.
-- @include lib: add_jobs(clock_of deduplications_of fill_opts job_terms listed) events(is_written)
-- @include lib: values(free_id number_texts take_numbers) waiting(push WALK_STEPS)
-- @include bull/lib: add_jobs(debounce) events(publish) waiting(priority_inserts waiting_list)
-- @include {dialect}/lib: add_jobs

-- Takes a debounce id for a job, for `ttl` ms, or without it until the job finishes. When another job has the id,
-- publishes that and returns its id.
local function debounce(arg, debounce_id, ttl, job_id)
  local holder = arg.base .. 'de:' .. debounce_id
  local is_free
  if ttl then
    is_free = call('SET', holder, job_id, 'PX', ttl, 'NX')
  else
    is_free = call('SET', holder, job_id, 'NX')
  end
  if is_free then
    return nil
  end
  local kept = call('GET', holder)
  publish(arg, 'debounced', arg.base .. 'debounced@' .. arg.token, kept)
  return kept
end

-- A finished job releases its debounce id, unless that has a TTL.
local function free_debounce(base, job_id)
  local debounced = call('HGET', base .. job_id, 'deid')
  local ttl = debounced and call('PTTL', base .. 'de:' .. debounced)
  if ttl == 0 or ttl == -1 then
    call('DEL', base .. 'de:' .. debounced)
  end
end

-- Adds jobs of a chunk.

-- Adds the jobs of a chunk from row `from` on: all of them, or with priorities as many as the length of the list
-- allows, unless the chunk must be added as a whole.
-- Returns {next = first row not processed, added, duplicates, deduplicated, ids, is_range (see keep_ids)}. A job that
-- is deduplicated has the id of the job that is kept.
local function add_jobs(key, arg, chunk, from, now)
  local base = arg.base
  local target = waiting_list(key)
  local last = chunk.n
  if chunk.priority and not chunk.whole then
    local share = math.max(1, math.floor(WALK_STEPS / (call('LLEN', target) + chunk.n)))
    last = math.min(last, from + share - 1)
  end
  local counter = take_numbers(key, last - from + 1) - last
  local names, datas, all_opts = listed(chunk, 'name'), chunk.data, listed(chunk, 'opts')
  local custom_ids, priorities = listed(chunk, 'job_id'), listed(chunk, 'priority')
  local lifos, times_of = listed(chunk, 'lifo'), clock_of(chunk, now)
  local deduplication_of = deduplications_of(chunk)
  local store_terms, first_expiry = job_terms(key, chunk, 'stalledCounter')
  local ids, duplicates, deduplicated = {}, 0, 0
  local waiting, has_steps = base .. 'waiting@' .. arg.token, is_written(arg, 'waiting')
  local pushes, prioritized, text = push.new(), {}, number_texts()

  for i = from, last do
    local custom_id = custom_ids[i]
    local job_id = custom_id or free_id(key, base, counter + i)
    local job_key, kept, debounce_id = base .. job_id, nil, nil
    if custom_id and call('EXISTS', job_key) == 1 then
      duplicates = duplicates + 1
      publish(arg, 'duplicated', base .. 'duplicated@' .. arg.token, job_id)
    else
      if deduplication_of then
        local id, rule = deduplication_of(i)
        debounce_id, kept = id, id and debounce(arg, id, rule.ttl, job_id)
      end
      if kept then
        deduplicated = deduplicated + 1
      else
        local timestamp, delay = times_of(i)
        local priority = priorities[i] or 0
        local opts = all_opts[i]
        if chunk.marked then
          opts = fill_opts(opts, text[timestamp], text[delay], job_id, debounce_id)
        end
        call('HSET', job_key, 'name', names[i], 'data', datas[i], 'opts', opts,
          'timestamp', text[timestamp], 'delay', text[delay], 'priority', text[priority])
        if debounce_id then
          call('HSET', job_key, 'deid', debounce_id)
        end
        if store_terms then
          store_terms(i, job_id, job_key, timestamp)
        end
        if delay > 0 then
          local eta = timestamp + delay
          call('ZADD', key.delayed, eta * 4096 + bit.band(counter + i, 0xfff), job_id)
          call('PUBLISH', key.delayed, eta)
        else
          -- Jobs with a priority are inserted before the next ones with `lifo`, and after the last ones.
          if priority > 0 then
            if #pushes.next > 0 then
              push.flush(pushes, target)
            end
            prioritized[#prioritized + 1] = {id = job_id, priority = priority}
          else
            if lifos[i] and #prioritized > 0 then
              priority_inserts.many(key, target, prioritized)
              prioritized = {}
            end
            push.gather(pushes, job_id, lifos[i])
          end
          if has_steps then
            call('PUBLISH', waiting, job_id)
          end
        end
      end
    end
    ids[#ids + 1] = kept or job_id
  end
  push.flush(pushes, target)
  priority_inserts.many(key, target, prioritized)
  if store_terms and first_expiry() then
    -- Who promotes delayed jobs looks at the queue again then.
    call('PUBLISH', key.delayed, text[first_expiry()])
  end
  return {
    next = last + 1,
    added = last - from + 1 - duplicates - deduplicated,
    duplicates = duplicates,
    deduplicated = deduplicated,
    ids = ids,
    -- A number that is taken moves the counter.
    is_range = not chunk.job_id and deduplicated == 0
      and tonumber(call('GET', key.id)) == counter + last,
  }
end

-- As in bullmq/lib. Jobs of Bull do not know their parents, whose dependencies they stay until they are gathered.
local function add_children(key, arg, chunk, now)
  local ids, parent_ids = listed(chunk, 'job_id'), listed(chunk, 'parent_id')
  for row = 1, chunk.n do
    call('SADD', arg.base .. parent_ids[row] .. ':dependencies', arg.base .. ids[row])
  end
  chunk.whole = true
  return add_jobs(key, arg, chunk, 1, now).added
end
