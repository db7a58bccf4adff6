-- What is done with single jobs of any state.
-- @include lib: add_jobs(holder_of listed) jobs(args_at id_there is_job keys_at)
-- @include lib: values(finite_number is_true options_of whole_number) waiting(WALK_STEPS)
-- @include {dialect}/lib: add_jobs manage(manage_actions mismatch_of retry_job) settle_jobs(keep_rule settle_jobs)
-- @include {dialect}/lib: waiting(delay_job enqueue_promoted)

-- Returns a function of a change that says why the job can't be changed; see manage_jobs. `refusal(change)`
-- returns 'locked', 'scheduled' or nil, `is_in_wrong_state(change)` whether the state of the job excludes the action.
local function mismatch_by(base, refusal, is_in_wrong_state)
  return function(change)
    if not is_job(base, change.id) then
      if change.action == 'promote' and not change.data and call('EXISTS', change.key) == 1 then
        -- A claim puts a job aside whose key is no hash.
        return is_in_wrong_state(change) and 'missing' or nil
      end
      -- An id without a job can be removed.
      return (change.action ~= 'remove' or call('EXISTS', change.key) == 1) and 'missing' or nil
    end
    local id = change.action == 'move' and id_there(change)
    local is_there = id and call('EXISTS', change.to_base .. id) == 1
    return refusal(change) or is_in_wrong_state(change) and 'wrong_state' or is_there and 'exists' or nil
  end
end

-- Completes or fails jobs that no worker has claimed, and that have left their state: for the moment of the script they
-- are active and locked, so that they end as claimed jobs do. `changes`: {id, key, action, reason or value} of each.
-- Returns the set of the ids of those that have ended.
local function finish_unclaimed(key, arg, changes, now)
  local outcomes = {token = arg.token, ids = {}, values = {}, keeps = {}, failed = {}}
  for _, change in ipairs(changes) do
    local id, fields = change.id, call('HMGET', change.key, 'opts', 'stacktrace')
    local opts = options_of(fields[1])
    call('RPUSH', key.active, id)
    call('SET', change.key .. ':lock', arg.token)
    if change.action == 'complete' then
      local next_one = #outcomes.ids + 1
      outcomes.ids[next_one], outcomes.values[next_one] = id, change.value or 'null'
      outcomes.keeps[next_one] = keep_rule(opts, 'removeOnComplete') or {}
    else
      outcomes.failed[#outcomes.failed + 1] = {
        id = id,
        reason = change.reason,
        stack = fields[2] or '[]',
        keep = keep_rule(opts, 'removeOnFail'),
        attempts = finite_number(opts.attempts) or 1,
      }
    end
  end
  return settle_jobs(key, arg, outcomes, now).mine
end

-- The options of a job with `deadLetter`: where, and why, its last attempt has failed. Of two, parsers take the last one.
local function with_origin(arg, id, opts, reason, attempts_made)
  local members = string.match(opts, '^%s*{(.*)}%s*$')
  if not members then
    return opts
  end
  local origin = {queue = arg.queue, id = id, failedReason = reason, attemptsMade = whole_number(attempts_made)}
  local comma = string.find(members, '%S') and ',' or ''
  return '{' .. members .. comma .. '"deadLetter":' .. cjson.encode(origin) .. '}'
end

-- Adds the job of a change to the queue `change.to` as a new one with the same name, payload, options and terms; its own
-- keys stay. A job that has expired may start there. One whose last attempt has failed takes along why; a completed one
-- may have failed before.
local function move_job(key, arg, change, now, is_completed)
  local fields = call('HMGET', change.key, 'name', 'data', 'opts', 'priority', 'attempts', 'expireAt', 'stc',
    'stalledCounter', 'failedReason', 'atm', 'attemptsMade')
  local text, expires, reason = fields[3] or '{}', finite_number(fields[6]), not is_completed and fields[9]
  local opts = options_of(text)
  local chunk = {
    n = 1,
    whole = true,
    name = {fields[1] or '__default__'},
    data = {change.data or fields[2] or '{}'},
    opts = {reason and with_origin(arg, change.id, text, reason, fields[10] or fields[11]) or text},
    job_id = {id_there(change)},
    delay = {change.delay or 0},
    priority = {whole_number(fields[4])},
    lifo = {is_true(opts.lifo)},
    attempts = {finite_number(fields[5]) or 1},
    expire_at = {expires and expires > now and expires or nil},
    stalled_counter = {opts.delivery == 'at-most-once' and (fields[7] or fields[8]) or nil},
  }
  add_jobs(keys_at(key, arg, change.to_base), args_at(arg, change.to_base, change.to), chunk, 1, now)
end

-- The actions that are alike in all dialects; see manage_jobs.
local function plain_actions(key, arg, now)
  local actions = {}

  function actions.promote(change)
    call('ZREM', key.delayed, change.id)
    enqueue_promoted(key, arg, change.id)
    return 'done'
  end

  function actions.retry(change)
    retry_job(key, arg, change)
    return 'done'
  end

  function actions.delay(change)
    call('ZREM', key.delayed, change.id)
    call('HSET', change.key, 'delay', change.delay)
    delay_job(key, change.id, now + change.delay)
    return 'done'
  end

  function actions.update()
    return 'done'
  end

  function actions.free(change)
    call('DEL', holder_of(change))
    return 'done'
  end

  return actions
end

local FIELDS = {'id', 'action', 'data', 'delay', 'priority', 'lifo', 'reset_attempts', 'to', 'to_base', 'reason', 'value',
  'from'}

-- Returns a function of the row that returns the change of one job: {key of the job, id, action, …}.
local function changes_of(base, chunk)
  local columns = {}
  for _, name in ipairs(FIELDS) do
    columns[name] = chunk[name] ~= nil and listed(chunk, name) or nil
  end
  return function(i)
    local change = {}
    for name, column in pairs(columns) do
      change[name] = column[i]
    end
    change.key = base .. change.id
    return change
  end
end

-- Takes the steps of an action from the share of the script. The first job of a script may take more than there are.
local function takes_steps(share, steps)
  if not share.is_first and steps > share.steps then
    return false
  end
  share.steps = share.steps - steps
  return true
end

local managed_jobs = {changes_of = changes_of, takes_steps = takes_steps}

-- What a job costs of the steps of one script, by its action.
local STEPS_OF = {delay = 1250, remove = 1500, fail = 3500, complete = 3500, move = 3500}
local STEPS = 1000

-- Changes the jobs of a chunk from row `from` on, as many as one script may. `mismatch_of` says why a job can't be
-- changed: 'missing', 'locked', 'scheduled', 'wrong_state' or 'exists', or nil. `manage_actions[name](change, share)`
-- changes one job and returns 'done' or such a reason; or 'open' to be called again in the next script.
-- Returns {next = first row not processed, outcomes}.
local function manage_jobs(key, arg, chunk, from, now)
  local mismatch, actions = mismatch_of(key, arg), manage_actions(key, arg, now)
  local change_of, outcomes, i = managed_jobs.changes_of(arg.base, chunk), {}, from
  local share = {steps = WALK_STEPS}
  while i <= chunk.n do
    local change = change_of(i)
    share.is_first = i == from
    if not managed_jobs.takes_steps(share, STEPS_OF[change.action] or STEPS) then
      break
    end
    local outcome = mismatch(change) or actions[change.action](change, share)
    if outcome == 'open' then
      break
    end
    if outcome == 'missing' and change.action == 'promote' and call('EXISTS', change.key) == 0 then
      -- An id without a job leaves its state.
      call('ZREM', key.delayed, change.id)
    end
    if outcome == 'done' and change.data and change.action ~= 'move' then
      call('HSET', change.key, 'data', change.data)
    end
    outcomes[#outcomes + 1] = outcome
    i = i + 1
  end
  return {next = i, outcomes = outcomes}
end
