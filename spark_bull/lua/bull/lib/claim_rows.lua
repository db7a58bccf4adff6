-- @include lib/job_row

-- What claimed jobs are asked for, in the order of outcomes.CLAIMED_COLUMNS. Not every dialect has all of them.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'ats', 'attemptsMade', 'parentKey', 'defa', 'stalledCounter',
  'progress', 'stacktrace', 'priority', 'attempts'}

-- Of a job whose key is no hash any more.
local NO_FIELDS = {}
for i = 1, #CLAIM_FIELDS do
  NO_FIELDS[i] = false
end

local function claim_rows(base, ids)
  local rows = {}
  for i, id in ipairs(ids) do
    rows[i] = job_row(base .. id, unpack(CLAIM_FIELDS)) or NO_FIELDS
  end
  return rows
end
