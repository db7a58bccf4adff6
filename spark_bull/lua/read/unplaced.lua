-- Finds those of some ids that are jobs in no state, or in one that is a list, which the caller reads: a search for each
-- job would take too long.
-- @keys states...
-- @args ids...
-- @returns ids
-- @include lib: unplaced_test

local is_unplaced, found = unplaced_test(key, arg), {}
for _, job_id in ipairs(arg.ids) do
  if is_unplaced(job_id) then
    found[#found + 1] = job_id
  end
end
return found
