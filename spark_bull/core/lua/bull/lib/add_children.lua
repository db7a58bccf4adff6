-- @include lib: listed
-- @include {dialect}/lib: add_jobs

-- As in bullmq/lib. Jobs of Bull do not know their parents, whose dependencies they stay until they are gathered.
local function add_children(key, arg, chunk, now)
  local ids, parent_ids = listed(chunk, 'job_id'), listed(chunk, 'parent_id')
  for row = 1, chunk.n do
    redis.call('SADD', arg.base .. parent_ids[row] .. ':dependencies', arg.base .. ids[row])
  end
  chunk.whole = true
  return add_jobs(key, arg, chunk, 1, now).added
end
