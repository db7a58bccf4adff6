-- What a guard knows about a queue.

local COUNT_OF = {list = 'LLEN', zset = 'ZCARD', set = 'SCARD'}
local UNFINISHED = {'wait', 'paused', 'active', 'delayed', 'prioritized', 'waiting_children'}

local function size_of(state_key)
  local count = COUNT_OF[call('TYPE', state_key).ok]
  return count and call(count, state_key) or 0
end

-- The number of jobs that have ended in one of `states`, whether or not they still exist: the id counter, less the jobs
-- that are in another state. A duplicate, and a job that was removed before it ended, count as ended; a retried job
-- does not.
local function ended_jobs(key, states)
  local count, wanted = tonumber(call('GET', key.id) or 0), {}
  for _, state in ipairs(states) do
    wanted[state] = true
  end
  for _, state in ipairs(UNFINISHED) do
    count = count - size_of(key[state])
  end
  for _, state in ipairs({'completed', 'failed'}) do
    if not wanted[state] then
      count = count - size_of(key[state])
    end
  end
  return count
end

-- What a queue that a guard has paused has as the sign of its pause, in place of Node's `1`: when the pause ends, ms since
-- 1970, and why the guard paused it. Another pause replaces the sign, and is no longer the pause of a guard.
local START = 'spark-bull guard until '

local function make_mark(ends, why)
  return START .. string.format('%.0f', ends) .. ': ' .. why
end

-- Returns {ends, why, mark} of a guard's pause, nil for another one.
local function read_mark(mark)
  local ends, why = string.match(mark, '^spark%-bull guard until (%d+): (.*)$')
  -- More digits are no time, and not a guard's.
  return ends and #ends <= 16 and {ends = tonumber(ends), why = why, mark = mark} or nil
end

local guard_mark = {make = make_mark, read = read_mark}

-- The looks of a guard at its queue, oldest first; those before the window are forgotten, but for one. They begin anew
-- with a pause, after a gap, and when jobs that had ended wait again.
local KEPT_MS = 3600000

local function read(key)
  local packed = call('GET', key.guard)
  return packed and cmsgpack.unpack(packed) or {looks = {}}
end

local function write(key, arg, state)
  local ttl_ms = KEPT_MS + tonumber(arg.window_ms) + tonumber(arg.resume_after_ms)
  call('SET', key.guard, cmsgpack.pack(state), 'PX', ttl_ms)
end

-- Numbers of jobs that grow as jobs end, by three sources: the id counter, which may grow without them, and the kept
-- jobs and the metrics of workers, which can lack some.
local function counted(key, arg, now)
  return {
    at = now,
    ended = ended_jobs(key, {'completed', 'failed'}),
    failed = call(arg.finish_times == '1' and 'ZCARD' or 'SCARD', key.failed),
    metrics_completed = tonumber(call('HGET', key.metrics_completed, 'count') or 0),
    metrics_failed = tonumber(call('HGET', key.metrics_failed, 'count') or 0),
  }
end

-- The numbers of jobs that have failed and ended since a look.
local function since(key, arg, before, now)
  local function kept(state_key)
    return arg.finish_times == '1' and call('ZCOUNT', state_key, '(' .. before.at, now.at) or 0
  end
  local failed = math.max(
    0, now.failed - before.failed, now.metrics_failed - before.metrics_failed, kept(key.failed)
  )
  local by_metrics, by_kept = now.metrics_completed - before.metrics_completed, kept(key.completed)
  local completed = math.max(0, by_metrics, by_kept)
  -- The counter also counts duplicates and jobs that were removed before they ended: only if the others can lack jobs.
  -- Older kept jobs show that none of the window were removed to keep a number of jobs.
  local has_all = by_metrics > 0 or (by_kept > 0 and call('ZCOUNT', key.completed, '-inf', before.at) > 0)
  if not has_all then
    completed = math.max(completed, now.ended - before.ended - failed)
  end
  return failed, completed + failed
end

local function is_met(arg, failed, ended)
  local value = failed
  if arg.measure == 'failedRate' then
    if ended < tonumber(arg.min_jobs) or ended == 0 then
      return false
    end
    value = failed / ended
  end
  local limit = tonumber(arg.threshold)
  return value > limit or (arg.operator == '>=' and value == limit)
end

-- Looks at the queue, unless the last look or a pause that has been ended early was just before. Returns why the queue is
-- to be paused, nil if it is not.
local function look(key, arg, now)
  local state, window_ms = read(key), tonumber(arg.window_ms)
  local looks = state.looks
  local last = looks[#looks]
  if now < (state.rests_until or 0) or (last and now < last.at + tonumber(arg.interval_ms)) then
    return nil
  end
  local current = counted(key, arg, now)
  if last and (current.ended < last.ended or now > last.at + window_ms) then
    looks = {}
  end
  while #looks > 1 and looks[2].at <= now - window_ms do
    table.remove(looks, 1)
  end
  looks[#looks + 1] = current
  write(key, arg, {looks = looks})
  local failed, ended = since(key, arg, looks[1], current)
  if is_met(arg, failed, ended) then
    return arg.condition .. ': ' .. failed .. ' of ' .. ended .. ' jobs failed'
  end
  return nil
end

-- Forgets the looks as the queue is paused.
local function forget(key)
  if #read(key).looks > 0 then
    call('DEL', key.guard)
  end
end

-- Looks no more until then, also if somebody resumes the queue earlier.
local function rest(key, arg, ends)
  write(key, arg, {looks = {}, rests_until = ends})
end

local guard_window = {look = look, forget = forget, rest = rest}
