-- @include lib: keys_at
-- @include bullmq/lib: split_job_key

-- Returns the keys of the parent's queue, and its id.
local function parent_of(key, arg, parent_key)
  local base, parent_id = split_job_key(arg, parent_key)
  return keys_at(key, arg, base), parent_id
end
