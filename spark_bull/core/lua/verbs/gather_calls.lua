-- Gathers those calls that have ended and whose jobs are kept: their outcomes and details enter their parents, and the
-- jobs are removed. `calls`: {ids of jobs, ids of their parents}.
-- @returns nothing
-- @include lib: jobs(job_row)
-- @include {dialect}/lib: remove(remove_jobs) settle_jobs(finished_state)

local ids, parent_ids = unpack(cmsgpack.unpack(arg.calls))

-- A parent of BullMQ has the outcome already, and so has one whose caller has ended the call.
local function keep_outcome(parent_key, job_key, state, value, reason)
  if call('SREM', parent_key .. ':dependencies', job_key) == 0 then
    return
  elseif state == 'completed' then
    call('HSET', parent_key .. ':processed', job_key, value or 'null')
  else
    call('HSET', parent_key .. ':failed', job_key, reason or '')
  end
end

-- Attempts made, and times of the last start and of the end, ms since 1970, as far as they are known.
local function details_of(made, started, ended)
  return (made or '0') .. ' ' .. (started or '') .. ' ' .. (ended or '')
end

for i, job_id in ipairs(ids) do
  local job_key, parent_key = arg.base .. job_id, arg.base .. parent_ids[i]
  local state = finished_state.has(key.completed, job_id) and 'completed'
    or finished_state.has(key.failed, job_id) and 'failed'
  if state then
    local row = job_row(job_key, 'returnvalue', 'failedReason', 'atm', 'attemptsMade', 'processedOn', 'finishedOn')
    row = row or {}
    keep_outcome(parent_key, job_key, state, row[1], row[2])
    call('HSET', parent_key .. ':details', job_key, details_of(row[3] or row[4], row[5], row[6]))
    call(finished_state.take, key[state], job_id)
    remove_jobs(key, arg, {job_id}, true)
  end
  if state or call('EXISTS', job_key) == 0 then
    call('SREM', parent_key .. ':kept', job_key)
  end
end
