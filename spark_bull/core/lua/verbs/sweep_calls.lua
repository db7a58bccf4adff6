-- Removes the pending jobs of one parent of a caller whose lease has lapsed, of those that one SSCAN from `position`
-- returns. Jobs that a worker has locked stay. `left`: number of jobs that stay in the parents before. After the last
-- parent (`is_last`), the caller has ended if no job stays; else its lease is renewed once, to look at them again.
-- @returns {next position, '' at the end, number of removed jobs, number of jobs that stay}, or {'held'}
-- @include lib: jobs(CALL_KEYS) values(time_ms) waiting(WALK_STEPS)
-- @include {dialect}/lib: remove(remove_unfinished)

local now = time_ms()
local lapses = call('ZSCORE', key.open_callers, arg.caller)
if not lapses or tonumber(lapses) > now then
  return {'held'}
end
local removed = 0
local position = ''
if call('EXISTS', key.parent) == 1 then
  local share = {jobs = tonumber(arg.limit), steps = WALK_STEPS, seen = {}}
  position, removed = remove_unfinished(key, arg, key.parent, arg.position, arg.limit, share)
end
-- Kept jobs stay until they are gathered.
local stay = math.max(0, call('SCARD', key.parent .. ':dependencies') - 1, call('SCARD', key.parent .. ':kept') - 1)
if position == '' then
  local keep_ms = call('HGET', key.parent, 'keepMs')
  for _, name in ipairs(keep_ms and CALL_KEYS or {}) do
    call('PEXPIREAT', key.parent .. name, now + keep_ms)
  end
  if arg.is_last == '1' and stay + arg.left == 0 then
    call('ZREM', key.open_callers, arg.caller)
  elseif arg.is_last == '1' then
    call('ZADD', key.open_callers, now + arg.lease_ms, arg.caller)
  end
end
return {position, removed, stay}
