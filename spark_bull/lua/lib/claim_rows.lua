-- @include lib/job_row
-- @include lib/no_fields

-- The values of these fields of each job, false for a field that it lacks.
local function claim_rows(base, ids, fields)
  local rows = {}
  for i, id in ipairs(ids) do
    rows[i] = job_row(base .. id, unpack(fields)) or no_fields(#fields)
  end
  return rows
end
