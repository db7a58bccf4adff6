-- One call of a worker: it settles jobs and claims others.
-- @include lib: jobs(job_row) numbers(time_ms) work_once(claim_rows collapsed count_work)
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

-- How long the numbers of a worker stay after its last call, ms.
local COUNTERS_TTL_MS = 2592000000

-- Adds to the HASH of a worker how many jobs it has claimed, and how many have had each outcome; returns these numbers.
-- `lost`: {id, reason} of rejected outcomes. Jobs that could not end because of their children are not lost: they get
-- another outcome later. `damaged`: {id, kind} of jobs that can't run; those that are gone count as claimed and lost.
local function count_work(counters, claimed, outcomes, lost, damaged)
  local call, is_counted, gone = redis.call, {}, 0
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
  local call, now, name = redis.call, time_ms(), arg.call .. '\0'
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
