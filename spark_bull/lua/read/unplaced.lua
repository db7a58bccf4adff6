-- Finds those of some ids that are jobs in no state, or in one that is a list, which the caller reads: a search for each
-- job would take too long.
-- @keys damaged states...
-- @args base ids...
-- @returns ids
-- @include lib/is_unplaced

local found = {}
for _, job_id in ipairs(arg.ids) do
  if is_unplaced(key, arg, job_id) then
    found[#found + 1] = job_id
  end
end
return found
