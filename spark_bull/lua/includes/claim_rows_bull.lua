-- What claimed jobs are asked for, in the order of outcomes.CLAIMED_COLUMNS. Not every dialect has all of them.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'ats', 'attemptsMade', 'parentKey', 'defa', 'stalledCounter',
  'progress', 'stacktrace', 'priority', 'attempts'}

local function claim_rows(base, ids)
  local rows = {}
  for i, id in ipairs(ids) do
    rows[i] = redis.call('HMGET', base .. id, unpack(CLAIM_FIELDS))
  end
  return rows
end
