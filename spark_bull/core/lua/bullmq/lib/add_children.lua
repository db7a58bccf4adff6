-- @include lib: listed
-- @include bullmq/lib: add_jobs

-- Adds the jobs of a chunk, whose ids differ, as children of parents that exist; returns their number.
local function add_children(key, arg, chunk, now)
  local keys = {}
  for row, job_id in ipairs(listed(chunk, 'job_id')) do
    keys[row] = arg.base .. job_id
  end
  chunk.parents_exist = true
  chunk.new_ids = redis.call('EXISTS', unpack(keys)) == 0
  return add_jobs(key, arg, chunk, 1, now).added
end
