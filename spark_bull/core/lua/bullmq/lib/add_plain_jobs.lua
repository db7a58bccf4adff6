-- @include lib: is_written number_texts take_numbers
-- @include bullmq/lib: event_limit waiting_list

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
  local call, events, n = redis.call, key.events, chunk.n
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
