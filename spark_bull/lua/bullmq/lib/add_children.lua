-- @include bullmq/lib: add_jobs

-- Adds the jobs of a chunk as children of parents that exist; returns their number.
local function add_children(key, arg, chunk, now)
  chunk.parents_exist = true
  return add_jobs(key, arg, chunk, 1, now).added
end
