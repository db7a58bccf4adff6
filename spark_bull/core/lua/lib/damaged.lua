-- Jobs that can't run, or that no state has.
-- @include lib: jobs(is_job)

-- Records the id of a job whose key is not a hash but of another type (`kind`), or whose id is not UTF-8 ('id'). Such a
-- job can neither run nor fail, and is in no state.
local function set_aside(key, job_id, kind)
  redis.call('HSET', key.damaged, job_id, kind)
end

local function lose_damaged(key, job_id, kind, lost)
  set_aside(key, job_id, kind)
  lost[#lost + 1] = {job_id, 'damaged'}
end

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

-- The commands that return whether a ZSET or SET has a member.
local MEMBER_OF = {zset = 'ZSCORE', set = 'SISMEMBER'}

-- Returns a function that tells whether a key is a job that none of those states has that are ZSETs or SETs, and that is
-- not recorded as damaged.
local function unplaced_test(key, arg)
  local call, sorted = redis.call, {}
  for _, state_key in ipairs(key.states) do
    local command = MEMBER_OF[call('TYPE', state_key).ok]
    if command then
      sorted[#sorted + 1] = {command, state_key}
    end
  end
  return function(job_id)
    if not is_job(arg.base, job_id, true) or call('HEXISTS', key.damaged, job_id) == 1 then
      return false
    end
    for _, state in ipairs(sorted) do
      local found = call(state[1], state[2], job_id)
      if found and found ~= 0 then
        return false
      end
    end
    return true
  end
end
