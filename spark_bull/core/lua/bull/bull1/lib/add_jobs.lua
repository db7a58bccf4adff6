-- @include lib: add_jobs(clock_of fill_opts job_terms listed) events(is_written)
-- @include lib: values(free_id number_texts take_numbers) waiting(push)
-- @include bull/bull1/lib: events(opts_with_id)
-- @include bull/lib: waiting(waiting_list)

-- Publishes the message of Bull 1.1 and 2 about a job that was added, or existed, on a channel without prefix: [sender,
-- job]. `id` is JSON: a number for a delayed job without a custom id, else a string.
local function announce_added(arg, fields, id)
  call('PUBLISH', 'waiting@' .. arg.queue, '["' .. arg.token .. '",{"data":'
    .. fields.data .. ',"opts":' .. opts_with_id(fields.opts, id) .. ',"progress":0,"delay":' .. fields.delay
    .. ',"timestamp":' .. fields.timestamp .. ',"attempts":' .. fields.attempts
    .. ',"attemptsMade":0,"stacktrace":[],"returnvalue":null}]')
end

-- Adds all jobs of a chunk from row `from` on.
-- Returns {next = first row not processed, added, duplicates, ids, is_range (see keep_ids)}.
local function add_jobs(key, arg, chunk, from, now)
  local base = arg.base
  local n = chunk.n
  local counter = take_numbers(key, n - from + 1) - n
  local target = waiting_list(key)
  local all_opts, custom_ids = listed(chunk, 'opts'), listed(chunk, 'job_id')
  local all_attempts, lifos = listed(chunk, 'attempts'), listed(chunk, 'lifo')
  local times_of = clock_of(chunk, now)
  local store_terms, first_expiry = job_terms(key, chunk, 'stalledCounter')
  local ids, duplicates = {}, 0
  local pushes, text, has_steps = push.new(), number_texts(), is_written(arg, 'waiting')
  for i = from, n do
    local custom_id = custom_ids[i]
    local job_id = custom_id or free_id(key, base, counter + i)
    ids[#ids + 1] = job_id
    local timestamp, delay = times_of(i)
    local fields = {
      data = chunk.data[i],
      opts = all_opts[i],
      delay = text[delay],
      timestamp = text[timestamp],
      attempts = text[all_attempts[i] or 1],
    }
    if chunk.marked then
      fields.opts = fill_opts(fields.opts, fields.timestamp, fields.delay, job_id)
    end
    local eta = timestamp + delay
    local delayed = delay > 0 and eta > now
    if custom_id and call('EXISTS', base .. job_id) == 1 then
      duplicates = duplicates + 1
    else
      call('HSET', base .. job_id, 'data', fields.data, 'opts', fields.opts, 'progress', '0',
        'delay', fields.delay, 'timestamp', fields.timestamp, 'attempts', fields.attempts, 'attemptsMade', '0',
        'stacktrace', '[]', 'returnvalue', 'null')
      if store_terms then
        store_terms(i, job_id, base .. job_id, timestamp)
      end
      if delayed then
        local score = eta * 4096 + bit.band(counter + i, 0xfff)
        call('ZADD', key.delayed, score, job_id)
        call('PUBLISH', key.delayed, score / 4096)
      else
        push.gather(pushes, job_id, lifos[i])
        call('PUBLISH', key.jobs, job_id)
      end
    end
    if has_steps then
      announce_added(arg, fields, (custom_id or not delayed) and cjson.encode(job_id) or job_id)
    end
  end
  push.flush(pushes, target)
  if store_terms and first_expiry() then
    -- Who promotes delayed jobs looks at the queue again then.
    call('PUBLISH', key.delayed, text[first_expiry()])
  end
  return {
    next = n + 1,
    added = n - from + 1 - duplicates,
    duplicates = duplicates,
    ids = ids,
    -- A number that is taken moves the counter.
    is_range = not chunk.job_id and tonumber(call('GET', key.id)) == counter + n,
  }
end
