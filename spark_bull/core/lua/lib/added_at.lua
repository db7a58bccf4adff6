-- @include lib: job_row

-- When a job was added, ms, or nil.
local function added_at(job_key)
  local row = job_row(job_key, 'timestamp')
  return row and tonumber(row[1])
end
