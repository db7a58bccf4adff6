-- @include bullmq/lib/claim_fields
-- @include lib/job_row

-- The values of CLAIM_FIELDS of one job, false for a field that it lacks. Nil when the job has been removed (what is
-- left of it has neither timestamp nor data); nil and the type of its key when that is no hash.
local function claim_row(base, id, at, prioritized)
  local job_key = base .. id
  local row, kind = job_row(job_key, unpack(CLAIM_FIELDS, 1, FIELDS_OF_NEW_JOBS))
  if not row or not (row[at.timestamp] or row[at.data]) then
    return nil, kind
  end
  local more = (row[at.ats] or prioritized) and job_row(job_key, unpack(CLAIM_FIELDS, FIELDS_OF_NEW_JOBS + 1))
  for i = FIELDS_OF_NEW_JOBS + 1, #CLAIM_FIELDS do
    row[i] = more and more[i - FIELDS_OF_NEW_JOBS]
  end
  return row
end
