-- What every claimed job is asked for, in this order.
local FRESH = {'timestamp', 'data', 'name', 'opts', 'ats', 'atm', 'parentKey', 'defa'}
-- What only a job that was started before can have, and a prioritised one.
local USED = {'stc', 'progress', 'stacktrace', 'priority'}

-- The fields of a claimed job, false for none: FRESH ones, then USED ones. Nil when the job is gone.
local function claim_row(base, id, prioritized)
  local call, job_key = redis.call, base .. id
  local row = call('HMGET', job_key, unpack(FRESH))
  if not row[1] then
    return nil
  end
  if row[5] or prioritized then
    local more = call('HMGET', job_key, unpack(USED))
    row[9], row[10], row[11], row[12] = more[1], more[2], more[3], more[4]
  else
    row[9], row[10], row[11], row[12] = false, false, false, false
  end
  return row
end

local ALL = {'timestamp', 'data', 'name', 'opts', 'ats', 'atm', 'parentKey', 'defa', 'stc', 'progress', 'stacktrace', 'priority'}

local function claim_rows(base, ids)
  local rows = {}
  for i = 1, #ids do
    rows[i] = redis.call('HMGET', base .. ids[i], unpack(ALL))
  end
  return rows
end
