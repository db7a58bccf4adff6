-- The key of the relay of a job: its parent, in place of several jobs that depend on it. It is a job of a queue that
-- nobody but promoters works; see run_relays.
local function relay_key(key, job_id)
  return key.relays .. ':job-' .. job_id
end
