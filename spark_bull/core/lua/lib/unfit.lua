-- @include lib: set_aside

-- Why a job fails of which only fields are left that workers have written since it was removed.
local REMNANT = 'expected the payload of the job, found only what workers have written since it was removed'

-- Why a job can't run of which a claim has read this row, or nil: 'none' if it is gone, 'remnant' if it has neither a
-- payload nor the time at which it was added.
local function kind_of(job_key, row, at)
  if row[at.timestamp] or row[at.data] then
    return nil
  end
  return redis.call('EXISTS', job_key) == 1 and 'remnant' or 'none'
end

-- Adds a job that can't run to `damaged`, as {id, kind}. An id that begins with '0:' is a mark of BullMQ 4, not a job.
local function note(key, job_id, kind, damaged)
  if kind == 'none' and string.sub(job_id, 1, 2) == '0:' then
    return
  end
  if kind ~= 'none' and kind ~= 'remnant' then
    set_aside(key, job_id, kind)
  end
  damaged[#damaged + 1] = {job_id, kind}
end

local unfit = {kind_of = kind_of, note = note, REMNANT = REMNANT}
