-- Adds the calls of a chunk that are neither pending nor ended, and returns which of them have ended. A
-- call is a job whose parent keeps its value or its reason; the parent is no job of the queue, and never starts:
-- `pending` is a dependency that stays. `keeps` ('1'): the jobs are kept when they end, until they are gathered. In a
-- chunk, calls of one parent are next to each other.
-- @returns {number of jobs added, rows of the calls that have ended}, or {'closed'}
-- @include lib: add_jobs(listed only_rows) jobs(CALL_KEYS) values(time_ms)
-- @include {dialect}/lib: add_jobs(add_children)

local now = time_ms()
local chunk = cmsgpack.unpack(arg.chunk)
local ids, parent_ids = listed(chunk, 'job_id'), listed(chunk, 'parent_id')

local function open_parent(parent_key)
  if call('EXISTS', parent_key .. ':dependencies') == 1 then
    return
  end
  call('HSET', parent_key, 'name', 'call', 'data', '{}', 'opts', '{}', 'timestamp', now, 'delay', 0, 'priority', 0,
    'keepMs', arg.keep_ms)
  call('SADD', parent_key .. ':dependencies', arg.pending)
  -- So all keys exist, and expire together.
  for _, name in ipairs({':processed', ':failed', ':details'}) do
    call('HSET', parent_key .. name, arg.pending, '1')
  end
  call('SADD', parent_key .. ':kept', arg.pending)
  for _, name in ipairs(CALL_KEYS) do
    call('PEXPIREAT', parent_key .. name, now + arg.open_ms)
  end
end

-- Appends the rows from `first` to `last`, calls of one parent, to the new ones or to those that have ended.
local function divide(parent_key, first, last, new, ended)
  local members = {}
  for row = first, last do
    members[#members + 1] = arg.base .. ids[row]
  end
  local waits = call('SMISMEMBER', parent_key .. ':dependencies', unpack(members))
  local values = call('HMGET', parent_key .. ':processed', unpack(members))
  local reasons = call('HMGET', parent_key .. ':failed', unpack(members))
  for i = 1, #members do
    local row = first + i - 1
    if values[i] or reasons[i] then
      ended[#ended + 1] = row
    elseif waits[i] == 0 then
      new[#new + 1] = row
    end
  end
end

local new, ended, first = {}, {}, 1
for row = 1, chunk.n do
  if row == chunk.n or parent_ids[row + 1] ~= parent_ids[first] then
    local parent_key = arg.base .. parent_ids[first]
    open_parent(parent_key)
    divide(parent_key, first, row, new, ended)
    first = row + 1
  end
end
if #new > 0 and call('EXISTS', key.intake_closed) == 1 then
  return {'closed'}
end
call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
local added = 0
if #new > 0 then
  added = add_children(key, arg, only_rows(chunk, new), now)
end
for _, row in ipairs(arg.keeps == '1' and new or {}) do
  call('SADD', arg.base .. parent_ids[row] .. ':kept', arg.base .. ids[row])
end
return {added, ended}
