-- @include lib/job_row

-- What every claimed job is asked for, in this order.
local FRESH = {'timestamp', 'data', 'name', 'opts', 'ats', 'atm', 'parentKey', 'defa'}
-- What only a job that was started before can have, and a prioritised one.
local USED = {'stc', 'progress', 'stacktrace', 'priority'}

-- The fields of a claimed job, false for none: FRESH ones, then USED ones. Nil when the job is gone; nil and the type of
-- its key when that is no hash. What is left of a removed job has neither timestamp nor data.
local function claim_row(base, id, prioritized)
  local job_key = base .. id
  local row, kind = job_row(job_key, unpack(FRESH))
  if not row or not (row[1] or row[2]) then
    return nil, kind
  end
  if row[5] or prioritized then
    local more = job_row(job_key, unpack(USED))
    row[9], row[10], row[11], row[12] = more[1], more[2], more[3], more[4]
  else
    row[9], row[10], row[11], row[12] = false, false, false, false
  end
  return row
end

local ALL = {'timestamp', 'data', 'name', 'opts', 'ats', 'atm', 'parentKey', 'defa', 'stc', 'progress', 'stacktrace', 'priority'}

-- Of a job whose key is no hash any more.
local NO_FIELDS = {}
for i = 1, #ALL do
  NO_FIELDS[i] = false
end

local function claim_rows(base, ids)
  local rows = {}
  for i = 1, #ids do
    rows[i] = job_row(base .. ids[i], unpack(ALL)) or NO_FIELDS
  end
  return rows
end
