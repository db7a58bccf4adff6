-- Jobs are claimed.
-- @include lib: claim_jobs(claim_rows collapsed count_work) jobs(job_row) values(options_of time_ms whole_number)
-- @include {dialect}/lib: claim_jobs(CLAIM_FIELDS claim_next)

-- The values of these fields of each job, false for a field that it lacks.
local function claim_rows(base, ids, fields)
  local rows, none = {}, {}
  for i = 1, #fields do
    none[i] = false
  end
  for i, id in ipairs(ids) do
    rows[i] = job_row(base .. id, unpack(fields)) or none
  end
  return rows
end

-- Rows of values as columns, by the names of the fields: a list of values, or one value where all rows have the same;
-- false for none. `rows.same`: the values of fields that are not in the rows, name -> value of all of them.
local function collapsed(rows, names)
  local columns, count, same = {}, #rows, rows.same or {}
  for field, name in ipairs(names) do
    local first, column = rows[1][field] or same[name] or false, nil
    for i = 2, same[name] == nil and count or 1 do
      if (rows[i][field] or false) ~= first then
        column = {}
        break
      end
    end
    if column then
      for i = 1, count do
        column[i] = rows[i][field] or false
      end
    end
    columns[name] = column or first
  end
  return columns
end

-- How long the numbers of a worker stay after its last call, ms. A text, as Redis 6.2 is slow to format numbers.
local COUNTERS_TTL_MS = '2592000000'

-- Adds to the HASH of a worker how many jobs it has claimed, and how many have had each outcome; returns these numbers.
-- `lost`: {id, reason} of rejected outcomes. Jobs that could not end because of their children are not lost: they get
-- another outcome later. `damaged`: {id, kind} of jobs that can't run; those that are gone count as claimed and lost.
local function count_work(counters, claimed, outcomes, lost, damaged)
  local is_counted, gone = {}, 0
  for _, one in ipairs(damaged) do
    gone = gone + (one[2] == 'none' and 1 or 0)
  end
  local numbers = {claimed = claimed + gone, lost = gone}
  for _, one in ipairs(lost) do
    is_counted[one[1]] = true
    if one[2] ~= 'children' and one[2] ~= 'failed_children' then
      numbers.lost = numbers.lost + 1
    end
  end
  local function count(name, jobs)
    for _, job in ipairs(jobs or {}) do
      local id = type(job) == 'table' and job.id or job
      if not is_counted[id] then
        is_counted[id] = true
        numbers[name] = (numbers[name] or 0) + 1
      end
    end
  end
  if #lost == 0 then
    numbers.completed = outcomes.ids and #outcomes.ids
  else
    count('completed', outcomes.ids)
  end
  count('failed', outcomes.failed)
  count('retried', outcomes.retried)
  for _, kind in ipairs({'delayed', 'returned', 'unstarted', 'waiting_for_children'}) do
    count('returned', outcomes[kind])
  end
  local changed = false
  for name, number in pairs(numbers) do
    if number > 0 then
      call('HINCRBY', counters, name, number)
      changed = true
    end
  end
  if changed then
    call('PEXPIRE', counters, COUNTERS_TTL_MS)
  end
  return numbers
end

-- Settles and claims, unless this call was answered before, and returns the reply. The receipt holds the name of the call
-- and, packed, what was done, without the fields of the claimed jobs: a repeated call reads them again.
-- `settle_jobs(key, arg, outcomes, now)` returns {mine = set of the settled jobs, lost = {{id, reason}, …} of rejected
-- outcomes, may_drain = whether the queue may have drained by it}; `outcomes.worker` is the name under which the jobs were
-- claimed, or ''. `claim_next` returns {ids, damaged, limited_ms, next_due, more}, and the values of CLAIM_FIELDS of each
-- claimed job.
local function work_once(key, arg, settle_jobs)
  local now, name = time_ms(), arg.call .. '\0'
  local last, done, packed, rows = call('GET', key.receipt), nil, nil, nil
  if last and string.sub(last, 1, #name) == name then
    done = cmsgpack.unpack(string.sub(last, #name + 1))
    done.now = now
  else
    local settled, outcomes = {lost = false, may_drain = false}, {}
    if arg.outcomes ~= '' then
      outcomes = cmsgpack.unpack(arg.outcomes)
      outcomes.worker = arg.worker
      settled = settle_jobs(key, arg, outcomes, now)
    end
    local control = key.control and call('GET', key.control)
    done, rows = claim_next(key, arg, now, control and 0 or tonumber(arg.limit), settled.may_drain)
    done.now, done.columns, done.lost, done.paused = now, false, settled.lost, control == 'pause'
    done.stop = control == 'stop' or control == 'end'
    done.counted = key.counters and count_work(key.counters, #done.ids, outcomes, settled.lost or {}, done.damaged)
      or false
    if key.ledger and #done.ids > 0 then
      local claimed = call('INCRBY', key.ledger_end, #done.ids)
      call('ZADD', key.ledger, claimed, cmsgpack.pack({arg.lock_token, done.ids}))
      call('PEXPIRE', key.ledger, arg.ledger_ttl_ms)
      call('PEXPIRE', key.ledger_end, arg.ledger_ttl_ms)
    end
    packed = cmsgpack.pack(done)
    call('SET', key.receipt, name .. packed, 'PX', arg.ttl_ms)
  end
  if arg.want_jobs == '1' and #done.ids > 0 then
    done.columns = collapsed(rows or claim_rows(arg.base, done.ids, CLAIM_FIELDS), CLAIM_FIELDS)
    packed = nil
  end
  return packed or cmsgpack.pack(done)
end

-- The order in which waiting jobs are claimed.

-- Whether all of these texts are ASCII. To search each of them takes three times as long.
local function are_ascii(texts)
  return string.find(table.concat(texts), '^[%z\1-\127]*$') ~= nil
end

-- The characters of UTF-8 of several bytes.
local WIDE = {
  '[\194-\223][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
}

-- Whether a text is UTF-8.
local function is_utf8(text)
  local left = text
  for i = 1, string.find(text, '[\128-\255]') and #WIDE or 0 do
    left = string.gsub(left, WIDE[i], ' ')
  end
  return not string.find(left, '[\128-\255]')
end

local GROUP_PASS = 100
local MAX_PASSES = 20

-- Claims up to `count` of the waiting jobs: `take(count)` processes the next ones while `goes_on()`, and returns
-- whether it has read the last one. Only limits of groups, which hold jobs back, need several passes. Returns the same.
local function take_passes(groups, count, take, goes_on)
  if not groups then
    return take(count)
  end
  local passes, is_over = 0, false
  while not is_over and passes < MAX_PASSES and goes_on() do
    is_over, passes = take(math.max(count, GROUP_PASS)), passes + 1
  end
  return is_over
end

-- Claims waiting jobs in their order. `take(id, is_sound, prioritized)` returns whether it has processed a job: it has
-- not if the call may not take another one, as `fits()` tells. `is_sound`: whether the id is UTF-8. With limits of
-- groups, jobs that can't start are delayed up to the next one that can, so that it is found at once, and the walk ends
-- there. Returns {goes_on(), take_of(ids, first, step, prioritized), take_waiting(count)}.
local function walk_waiting(key, groups, take, fits)
  local is_ready, walk = false, {}

  function walk.goes_on()
    return not is_ready and fits() and (not groups or groups.may_hold())
  end

  -- Claims jobs of this list from index `first` on, up to the limits; returns how many it has processed.
  function walk.take_of(ids, first, step, prioritized)
    local count, is_ascii = walk.goes_on() and #ids or 0, are_ascii(ids)
    for processed = 0, count - 1 do
      local id = ids[first + step * processed]
      if groups and not groups.may_hold() then
        return processed
      end
      if not take(id, is_ascii or is_utf8(id), prioritized) then
        is_ready = true
        return processed
      end
    end
    return count
  end

  -- Claims up to `count` jobs of the list `wait`, the next one first; returns whether it has read the last one.
  function walk.take_waiting(count)
    local waiting = call('LRANGE', key.wait, -count, '-1')
    local processed = walk.take_of(waiting, #waiting, -1, false)
    if processed > 0 then
      call('LTRIM', key.wait, '0', -processed - 1)
    end
    return #waiting < count
  end

  return walk
end

-- Returns a table of the durations of the locks of jobs, ms, by their options, else `default`.
-- Options without one are not parsed, and equal ones are searched once.
local function lock_durations(default)
  return setmetatable({}, {
    __index = function(known, opts)
      local duration = default
      if string.find(opts, '"lockMs":', 1, true) then
        local given = whole_number(options_of(opts).lockMs)
        duration = given > 0 and string.format('%.0f', given) or default
      end
      known[opts] = duration
      return duration
    end,
  })
end

-- The number of jobs started in the current period of the rate limit. A key that holds no number is deleted.
local function started_jobs(limiter)
  local started = redis.pcall('GET', limiter)
  if type(started) == 'string' and string.match(started, '^%d+$') then
    return tonumber(started)
  end
  if started then
    call('DEL', limiter)
  end
  return 0
end

-- The rate limit: how many jobs may start in how many ms, nil for none. As in BullMQ, the queue's `max` has precedence
-- over the worker's, but the worker's duration over the queue's. With `delays`, the jobs over the worker's limit are
-- delayed when they are to start: see bull/lib/claim_jobs.lua.
local function rate_limit(arg, limits)
  if limits.delays then
    return nil
  end
  local most = limits.max or tonumber(arg.limiter_max)
  local duration = tonumber(arg.limiter_ms) or limits.duration
  if most and duration then
    return most, math.floor(math.abs(duration))
  end
end

-- Returns the claimable count and the rate-limit wait (ms). `limits`: {paused, concurrency, max, duration, delays} of
-- the queue itself, nil for none. Under a limit, no more jobs are claimed than start at once: others would use up the
-- limit without running.
local function claim_quota(key, arg, limits, limit)
  local left = call('PTTL', key.rate_limited)
  if left > 0 then
    return 0, left
  end
  local most, most_active = rate_limit(arg, limits), limits.concurrency
  if most then
    local started = started_jobs(key.limiter)
    if started >= most then
      left = call('PTTL', key.limiter)
      if left > 0 then
        return 0, left
      end
      call('DEL', key.limiter)
      started = 0
    end
    limit = math.min(limit, most - started)
  end
  if limits.paused then
    return 0, 0
  end
  if most_active then
    limit = math.min(limit, most_active - call('LLEN', key.active))
  end
  if most or most_active or limits.delays or arg.group ~= '' then
    limit = math.min(limit, tonumber(arg.at_once) or limit)
  end
  return math.max(limit, 0), 0
end

-- Counts started jobs for the rate limit, if there is one.
local function count_started(key, arg, limits, started)
  local most, duration = rate_limit(arg, limits)
  if most and started > 0 and call('INCRBY', key.limiter, started) == started then
    call('PEXPIRE', key.limiter, duration)
  end
end

local start_limit = {started = started_jobs, quota = claim_quota, count = count_started}
