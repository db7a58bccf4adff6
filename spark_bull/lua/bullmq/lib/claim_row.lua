-- @include bullmq/lib/claim_fields
-- @include lib/job_row

-- The values of CLAIM_FIELDS of one job, false or nil for a field that it lacks. Nil when the job has been removed
-- (what is left of it has neither timestamp nor data); nil and the type of its key when that is no hash.
local function claim_row(job_key, at, prioritized)
  local row, kind = job_row(job_key, unpack(CLAIM_FIELDS, 1, FIELDS_OF_NEW_JOBS))
  if not row or not (row[at.timestamp] or row[at.data]) then
    return nil, kind
  end
  if row[at.ats] or prioritized then
    for i, value in ipairs(job_row(job_key, unpack(CLAIM_FIELDS, FIELDS_OF_NEW_JOBS + 1))) do
      row[FIELDS_OF_NEW_JOBS + i] = value
    end
  end
  return row
end
