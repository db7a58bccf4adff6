-- Of the given ids, finds each that is a job in no state, or in one that is a list, which the caller reads: a search
-- for each job would take too long; and remnants: what is left of removed jobs has neither a payload nor the time at
-- which they were added.
-- @keys states...
-- @args ids...
-- @returns {ids, ids of remnants in any state}
-- @include lib: jobs(is_job job_row unplaced_test)

local is_unplaced, found, remnants = unplaced_test(key, arg), {}, {}
for _, job_id in ipairs(arg.ids) do
  if is_unplaced(job_id) then
    found[#found + 1] = job_id
  end
  local row = job_row(arg.base .. job_id, 'timestamp', 'data')
  if row and not (row[1] or row[2]) and is_job(arg.base, job_id, true) then
    remnants[#remnants + 1] = job_id
  end
end
return {found, remnants}
