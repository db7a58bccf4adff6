-- Adds the next staged jobs of a registered write whose jobs depend on each other. All wait until the last chunks of
-- the write link them, and release those that depend on none.
-- @returns {state of the write, rows processed, id of a write that comes first}; see commit_once
-- @include lib: writes(commit_once)
-- @include bullmq/lib: add_jobs dependents(link_jobs) flows(release_jobs)

-- A chunk of links, or of jobs to release, has no rows (n = 0).
local function add(key, arg, chunk, from, now)
  if chunk.n > 0 then
    return add_jobs(key, arg, chunk, from, now)
  elseif chunk.dependents then
    link_jobs(key, arg, chunk, now)
  else
    release_jobs(key, arg, chunk.released, now)
  end
  return {next = 1, added = 0, duplicates = 0}
end

return commit_once(key, arg, add)
