-- @include bullmq/lib: family leave_parent

-- Maximum number of dependents that one call tells of an end, with the jobs that it deletes.
local MOST_DEPENDENTS = 200

-- Tells the next dependents of a relay how its job has ended, as if each were the parent of that job; `most` at most.
-- If many jobs were removed with its own, they are removed, too, when they wait for nothing else. Returns how many,
-- with the jobs deleted.
local function tell(key, arg, relay, most, now)
  local call = redis.call
  local fields = call('HMGET', relay, 'of', 'flag', 'defa', 'removed')
  local job_key = arg.base .. (fields[1] or '')
  local value, reason = call('HGET', relay .. ':processed', job_key), call('HGET', relay .. ':failed', job_key)
  -- Without a result, the job failed or was removed: those that depend on it go on, or fail.
  local flag = fields[3] and 'fpof' or reason and fields[2] or 'rdof'
  local told = 0
  while told < most do
    local dependent = call('LPOP', relay .. ':dependents')
    if not dependent then
      break
    end
    local parent_key = arg.base .. dependent
    if fields[4] then
      local _, deleted = leave_parent(key, arg, job_key, parent_key, true)
      told = told + deleted
    elseif value then
      family.child_completed(key, arg, job_key, parent_key, value, now)
    else
      family.child_failed(key, arg, job_key, parent_key, {[flag] = true}, reason or '', now)
    end
    told = told + 1
  end
  return told
end

-- Ends relays whose jobs have ended, which BullMQ has moved to the waiting ones of their queue: those that depend on
-- such a job go on. Returns whether there are more.
local function run_relays(key, arg, now)
  local call, left = redis.call, MOST_DEPENDENTS
  local id = call('LINDEX', key.relay_wait, -1)
  if not id then
    return false
  end
  while id and left > 0 do
    local relay = key.relays .. ':' .. id
    left = left - 1 - tell(key, arg, relay, left, now)
    if call('EXISTS', relay .. ':dependents') == 0 then
      -- Relays of jobs that it has deleted may be behind it.
      call('LREM', key.relay_wait, -1, id)
      call('UNLINK', relay, relay .. ':processed', relay .. ':failed', relay .. ':unsuccessful')
    end
    id = call('LINDEX', key.relay_wait, -1)
  end
  -- Nobody reads them.
  call('DEL', key.relay_events, key.relay_marker)
  return id and true or false
end
