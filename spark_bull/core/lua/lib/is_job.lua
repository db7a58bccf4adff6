-- @include lib: job_row

-- Fields that only jobs have, and fields that other hashes of a queue have, too.
local OF_JOBS = {'timestamp', 'delay', 'priority', 'attemptsMade', 'atm', 'ats', 'attempts', 'stalledCounter', 'stc',
  'returned', 'progress', 'returnvalue', 'failedReason', 'stacktrace', 'processedOn', 'finishedOn', 'pb', 'parentKey',
  'deid', 'rjk', 'defa'}
local SHARED = {'data', 'name', 'opts'}

local function has_any(row)
  for _, value in ipairs(row) do
    if value then
      return true
    end
  end
  return false
end

-- Whether an id belongs to a job: its key is a hash with some field of a job. What is left of a removed one is a job,
-- too: the libraries write to jobs that others have removed, and list, retry and remove what that makes. `alone`: whether
-- the id comes from the name of a key; with ':' it may belong to a job scheduler.
local function is_job(base, id, alone)
  local row = job_row(base .. id, unpack(OF_JOBS))
  if not row then
    return false
  end
  return has_any(row) or not (alone or string.find(id, ':', 1, true)) and has_any(job_row(base .. id, unpack(SHARED)))
end
