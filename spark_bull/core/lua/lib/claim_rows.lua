-- @include lib: job_row

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
