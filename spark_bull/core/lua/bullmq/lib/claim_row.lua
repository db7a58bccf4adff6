-- @include lib: job_row unfit
-- @include bullmq/lib: claim_fields(CLAIM_FIELDS)

-- The fields that every new job has: the first PLAIN of CLAIM_FIELDS, `priority` and `delay`. Only a job with another
-- number of fields can have the others, which take Redis longer to look for than to count.
local PLAIN, FIELDS_OF_NEW_JOBS = 4, 6
local A, B, C, D = unpack(CLAIM_FIELDS, 1, PLAIN)

-- The values of CLAIM_FIELDS of one job, false or nil for a field that it lacks, and for the priority 0 of a new job;
-- and whether it may have more than the first PLAIN; the second value is 'remnant' for what is left of a removed job,
-- which gets a deferred failure. Nil and 'none' when the job is gone; nil and the type of its key when that is no hash.
local function claim_row(job_key, at, prioritized)
  local first, row, kind = PLAIN, nil, nil
  if prioritized then
    first = PLAIN + 1
    row, kind = job_row(job_key, unpack(CLAIM_FIELDS, 1, first))
  else
    row, kind = job_row(job_key, A, B, C, D)
  end
  kind = row and unfit.kind_of(job_key, row, at) or kind
  if not row or kind == 'none' then
    return nil, kind
  elseif kind then
    redis.call('HSETNX', job_key, 'defa', unfit.REMNANT)
  elseif redis.call('HLEN', job_key) == FIELDS_OF_NEW_JOBS then
    return row, nil, prioritized
  end
  for i, value in ipairs(job_row(job_key, unpack(CLAIM_FIELDS, first + 1))) do
    row[first + i] = value
  end
  return row, kind, true
end
