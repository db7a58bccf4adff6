-- @include lib/holder_of

-- Frees the deduplication id of a job, which holds it.
local function free_of_job(change)
  redis.call('DEL', holder_of(change))
  return 'done'
end
