-- @include lib/job_row
-- @include lib/listed
-- @include lib/walk_steps

-- What a job costs of the steps of one script, by its action.
local STEPS_OF = {delay = 1250, remove = 1500, fail = 3500, complete = 3500, move = 3500}
local STEPS = 1000
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

-- Whether a key is a job: a hash with a creation time or a payload.
local function is_job(job_key)
  local row = job_row(job_key, 'timestamp')
  return row and (row[1] or redis.call('HEXISTS', job_key, 'data') == 1)
end

-- Takes the steps of an action from the share of the script. The first job of a script may take more than there are.
local function takes_steps(share, steps)
  if not share.is_first and steps > share.steps then
    return false
  end
  share.steps = share.steps - steps
  return true
end

-- Changes the jobs of a chunk from row `from` on, as many as one script may. `mismatch(change)` returns why a job can't
-- be changed: 'missing', 'locked', 'scheduled', 'wrong_state' or 'exists', or nil. `actions[name](change, share)` changes
-- one job and returns 'done' or such a reason; or 'open' to be called again in the next script.
-- Returns {next = first row not processed, outcomes}.
local function manage_jobs(arg, chunk, from, mismatch, actions)
  local change_of, outcomes, i = changes_of(arg.base, chunk), {}, from
  local share = {steps = WALK_STEPS}
  while i <= chunk.n do
    local change = change_of(i)
    share.is_first = i == from
    if not takes_steps(share, STEPS_OF[change.action] or STEPS) then
      break
    end
    local outcome = mismatch(change) or actions[change.action](change, share)
    if outcome == 'open' then
      break
    end
    if outcome == 'done' and change.data and change.action ~= 'move' then
      redis.call('HSET', change.key, 'data', change.data)
    end
    outcomes[#outcomes + 1] = outcome
    i = i + 1
  end
  return {next = i, outcomes = outcomes}
end

local managed_jobs = {changes_of = changes_of, is_job = is_job, takes_steps = takes_steps, manage = manage_jobs}
