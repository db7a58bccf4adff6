-- @include lib: whole_number

-- A job's priority; 0 for none, for a text that is not a number, and for a key that is not a hash.
local function priority_of(job_key)
  return whole_number(redis.pcall('HGET', job_key, 'priority'))
end
